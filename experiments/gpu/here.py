"""What the checks run on: this machine's devices, and placements on them. What needs a package imports it where it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.gpu import workloads
from gnnplace.execution.machine import gpus

if TYPE_CHECKING:
    from gnnplace.cluster import Cluster
    from gnnplace.execution.torch.workload import TorchWorkload
    from gnnplace.execution.workload import ExecutionPlan, Workload

SEED, PLACEMENTS = 0, 10
LOGICAL = (2, 4)


class SkippedError(Exception):
    """A check that can't be made here, with the reason."""


def main_kind() -> str:
    return "gpu" if gpus() else "cpu"


def cluster() -> Cluster:
    from gnnplace.execution.machine import cores, machine

    return machine("here") if gpus() else cores("here", min(2, num_cores()))


def two_devices() -> Cluster:
    """Two devices whose steps are comparable: two GPUs, or a GPU and a CPU device, or two cores."""
    from gnnplace.execution.machine import cores, with_gpus

    found = gpus()
    if len(found) > 1:
        whole = with_gpus("here", found[:2])
        return type(whole)("here", whole.devices[1:], tuple(link for link in whole.links if "cpu:0" not in (link.src, link.dst)))
    if found:
        return with_gpus("here", found)
    if num_cores() < 2:
        raise SkippedError("two devices need two cores, and this process may use one")
    return cores("here", 2)


def sized(name: str) -> str:
    return f"{name}_large" if len(gpus()) > 1 else name


def num_cores() -> int:
    from gnnplace.isolation.worker import usable_cores

    return len(usable_cores())


def mixtures() -> Iterator[tuple[str, list[str]]]:
    """Kinds of devices that placed steps are checked on, in words: where there is no GPU, on cores and on threads."""
    number = len(gpus())
    if not number:
        for count in range(1, min(2, num_cores()) + 1):
            yield f"{count} core(s)", ["cpu"] * count
        return
    yield "CPU + GPU", ["cpu", "gpu"]
    yield "1 GPU", ["gpu"]
    for count in LOGICAL:
        yield f"{count} devices on {min(count, number)} GPU(s)", ["gpu"] * count
    if number > max(LOGICAL):
        yield f"{number} GPUs", ["gpu"] * number


def plain_devices(kinds: Sequence[str]) -> Any:
    from gnnplace.cluster import Device

    return tuple(Device(f"{kind}:{place}", kind, 2**34, 10**12, 10**11) for place, kind in enumerate(kinds))


def loaded_here(name: str) -> TorchWorkload:
    import torch

    from gnnplace.execution.torch.workload import TorchWorkload

    torch.manual_seed(SEED)
    return TorchWorkload(getattr(workloads, name)(), name)


def reference(name: str) -> str:
    return f"experiments.gpu.workloads:{name}"


def spread(loaded: Workload, kinds: Sequence[str]) -> ExecutionPlan:
    """Colocation groups on devices at random."""
    import numpy as np

    from gnnplace.execution.workload import ExecutionPlan
    from gnnplace.units.units import colocation_closure

    graph = loaded.graph
    drawn = np.random.default_rng(SEED).integers(len(kinds), size=graph.num_ops).astype(np.int32)
    return ExecutionPlan(plain_devices(kinds), drawn[colocation_closure(graph)], graph.order)


def some_placements(problem: Any) -> dict[str, Any]:
    """Each device alone, what planners find, and random ones."""
    import numpy as np

    from gnnplace.baselines.heft import heft
    from gnnplace.baselines.metis import metis
    from gnnplace.baselines.random_units import draw
    from gnnplace.placement import Placement
    from gnnplace.simulator.simulator import simulate
    from gnnplace.units.units import allowed, expand, units

    found = {
        f"{device} alone": Placement(np.full(problem.num_ops, place, dtype=np.int32))
        for place, device in enumerate(problem.cluster.device_names[:2])
    }
    for name, plan in (("metis", metis), ("heft", heft)):
        found |= {f"{name}-{units_name}": plan(problem, simulate, units_name=units_name) for units_name in ("weights", "coarse")}
    made, generator = units(problem.graph, "weights"), np.random.default_rng(SEED)
    for number in range(PLACEMENTS - len(found)):
        found[f"random {number}"] = Placement(expand(made, draw(allowed(problem, made), 1, generator)[0].astype(np.int32)))
    return found


def protocol() -> Any:
    """The steady protocol, cut short: this is a check, not a measurement of a placement."""
    from gnnplace.execution.timing import Protocol

    return Protocol("steady", most_windows=4, steps=15, enough_ns=10**9)


def clocked(run: Callable[[], object]) -> Callable[[int], list[int]]:
    from time import monotonic_ns

    def steps(count: int) -> list[int]:
        times = []
        for _ in range(count):
            start = monotonic_ns()
            run()
            times.append(monotonic_ns() - start)
        return times

    return steps
