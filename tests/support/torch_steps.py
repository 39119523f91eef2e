"""Small PyTorch training steps of every sort that the executor must run, and random legal placements of them on CPU devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from datasets.build import dlrm, gpt2, gru, mixture_of_experts, torch_models, two_tower
from experiments.fidelity.torch_workloads import inception
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import roofline
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.execution.workload import ExecutionPlan, plan
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import colocation_closure, expand, units


def branches() -> TorchStep:
    """Parallel towers that meet in one product."""
    sizes = two_tower.Sizes((2, 1), rows=20, feature_width=4, widened=4, deep_widths=(8, 6), output_width=4)
    return torch_models.two_tower(batch=6, sizes=sizes)


def convolutions() -> TorchStep:
    """Convolutions with batch norm: buffers that the forward pass changes in place."""
    return inception(batch=2, size=6, channels=8, blocks=1)


def cells() -> TorchStep:
    """GRU cells, unrolled."""
    return torch_models.gru_lm(batch=3, steps=2, sizes=gru.Sizes(vocabulary=11, units=6, layers=1))


def dropout() -> TorchStep:
    """Attention, tied embeddings, random numbers."""
    return torch_models.gpt2(batch=2, length=5, sizes=gpt2.Sizes(vocabulary=11, max_length=5, width=8, heads=2, layers=1))


def tables() -> TorchStep:
    """Sparse embeddings, plain SGD."""
    return torch_models.dlrm(batch=5, sizes=dlrm.Sizes(rows=(9, 3, 20), width=4, bottom=(8,), top=(8,)))


def experts() -> TorchStep:
    """A mixture of experts under tied embeddings: gathers, scatters, top k."""
    sizes = mixture_of_experts.Sizes(vocabulary=13, max_length=4, width=8, heads=2, layers=1, experts=3, expert_width=8)
    return torch_models.moe_8e(batch=3, length=4, sizes=sizes)


class Views(nn.Module):
    """Sends on strided, expanded, empty and scalar tensors, and views of views of what was received."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(6, 12), nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(dim=0))
        left, middle, right = self.mix(x + self.seen).chunk(3, dim=1)
        scale = left.mean().expand(x.shape[0], 4)
        mixed = torch.cat([left.t()[:0].t().sum(dim=1, keepdim=True) + middle * scale, right[::2].repeat(2, 1)], dim=0)
        return self.out(mixed.t().contiguous().t()[:, None].squeeze(1)).square().mean()


def views() -> TorchStep:
    """See `Views`."""
    return TorchStep(Views(), lambda module, x: module(x), (torch.rand(4, 6),))


STEPS: dict[str, Callable[[], TorchStep]] = {
    function.__name__: function for function in (branches, convolutions, cells, dropout, tables, experts, views)
}
RANDOM = ("dropout",)  # those of which eager PyTorch draws other numbers


@cache
def workload(name: str) -> TorchWorkload:
    """The step of that name, always with the same values."""
    torch.manual_seed(0)
    return TorchWorkload(STEPS[name](), name)


def traced(name: str) -> TracedStep:
    """The trace of the step of that name."""
    return workload(name)._traced


def cores(count: int) -> Cluster:
    """`count` CPU devices that are all linked."""
    devices = tuple(Device(f"cpu:{i}", "cpu", 2**33, 50 * 10**9, 10**10) for i in range(count))
    links = tuple(Link(a.name, b.name, 2 * 10**9, 2000, 20_000) for a in devices for b in devices if a is not b)
    return Cluster(f"cores-{count}", devices, links)


def problem(graph: ComputationGraph, devices: int) -> Problem:
    """The graph on so many CPU devices."""
    return roofline.problem(graph, cores(devices))


def devices(*kinds: str) -> tuple[Device, ...]:
    """Devices of these kinds, a GiB each."""
    return tuple(Device(f"{kind}:{place}", kind, 2**30, 10**9, 10**9) for place, kind in enumerate(kinds))


def spread(graph: ComputationGraph, on: tuple[Device, ...], seed: int) -> ExecutionPlan:
    """Colocation groups on devices at random, in the graph's own order."""
    generator, groups = np.random.default_rng(seed), colocation_closure(graph)
    drawn = generator.integers(len(on), size=graph.num_ops).astype(np.int32)
    return ExecutionPlan(on, drawn[groups], graph.order)


def random_placement(problem: Problem, seed: int, schedule: Schedule = "critical-path") -> Placement:
    """Every colocation group on a device of its own choice; the busiest devices differ from seed to seed."""
    random, closed = np.random.default_rng(seed), units(problem.graph, "ops")
    shares = random.dirichlet(np.ones(problem.num_devices))
    device = random.choice(problem.num_devices, size=closed.num_units, p=shares).astype(np.int32)
    return Placement(expand(closed, device), schedule)


def planned(problem: Problem, placement: Placement) -> tuple[ExecutionPlan, StepResult]:
    """The plan of a placement, and its simulated step."""
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.timeline is not None
    return plan(problem, placement, result.timeline), result
