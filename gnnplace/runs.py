"""The part of the Python API that needs a framework: policies that are trained or loaded, and real steps.

Each function imports its framework when it is called.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnplace.cluster import Cluster
from gnnplace.costs import roofline
from gnnplace.formats import strict_json
from gnnplace.formats.documents import PathText
from gnnplace.placement import Placement
from gnnplace.plan import Plan
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.simulator import simulator
from gnnplace.sources import graphs as sources
from gnnplace.transformations.parallelism import Parallelism

if TYPE_CHECKING:
    from lightning import Callback

    from gnnplace.config.run import RunConfig
    from gnnplace.execution.measure import MeasuredStep
    from gnnplace.execution.torch.placed import PlacedModule
    from gnnplace.frontends.torch.step import TorchInference, TorchStep
    from gnnplace.training.run.assemble import Trained
    from gnnplace.training.run.zero_shot import ZeroShot


def load_policy(checkpoint: PathText, *, samples: int = 0, evaluations: int | None = None, seed: int = 0) -> ZeroShot:
    """The policy of a checkpoint as a planner of any problem.

    It gives its greedy placement, or the fastest of that and of `samples` samples.

    An improver improves list schedules instead, with 64 `evaluations` by default. Raises ValueError (one line)
    for a checkpoint that is damaged or of another version.
    """
    from gnnplace.training.run import zero_shot

    return zero_shot.planner(checkpoint, seed, samples, evaluations)


def train(
    problems: Problem | Sequence[Problem],
    policy: PathText = "hierarchical",
    encoder: str | None = None,
    settings: str | None = None,
    *,
    knobs: Mapping[str, Any] | None = None,
    teachers: Sequence[Placement | None] | None = None,
    evaluate: Evaluator = simulator.simulate,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Trains one policy on problems, in memory.

    `gnnplace train` also writes a run folder, tracks with MLflow and resumes.

    Args:
        problems: the training problems
        policy: a policy's name, such as "unit-placer", or a complete YAML file of knobs
        encoder: "paper" or "gnn", for a policy with a choice; default: that of its settings
        settings: "tuned" (default), or "published": the policy's paper and nothing else
        knobs: other values for knobs, by dotted name: `{"training.updates": 100, "policy.width": 32}`
        teachers: placements that a warm start imitates, one each; default: those of the best heuristics
        evaluate: the evaluator of placements; default: the simulator
        callbacks: callbacks of Lightning

    Raises ValueError for unknown knobs, and for problems that one policy can't place.

        >>> import gnnplace as gp
        >>> few = {"training.updates": 1, "training.warm_start.updates": 0, "training.placements": 2, "policy.width": 8}
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> trained = gp.train(problem, "unit-placer", knobs=few)
        >>> gp.simulate(problem, gp.place(problem, trained.policy)).step_time_ns > 0
        True
    """
    from gnnplace.training.run import assemble

    config = _configuration(policy, encoder, settings, knobs or {})
    several = [problems] if isinstance(problems, Problem) else problems
    return assemble.train(config, several, teachers, evaluate, callbacks)


def _configuration(policy: PathText, encoder: str | None, settings: str | None, knobs: Mapping[str, Any]) -> RunConfig:
    """The configuration of a policy's settings, or of a YAML file, with other values for some knobs."""
    from gnnplace.config import files

    overrides = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in knobs.items()]
    name = os.fspath(policy)
    if name.endswith(".yaml"):
        return files.read_config(Path(name), overrides, encoder)
    return files.read_settings(name, settings, overrides, encoder)


def measure(
    workload: str,
    placement: Placement | Planner,
    cluster: PathText | Cluster,
    *,
    against: Placement | Planner | None = None,
    protocol: str = "steady",
    limit_s: float = 600.0,
    seed: int = 0,
) -> MeasuredStep:
    """Runs a placed step on this machine, in a process of its own, and times it in turns with a reference.

    It proves that the step equals the unplaced one.

    Args:
        workload: FILE.py:FUNCTION, package.module:FUNCTION or a name of the corpus
        placement: of the workload's graph on the cluster, or a planner
        cluster: this machine, as `gnnplace calibrate` describes it
        against: the reference; default: every op on its first device
        protocol: "steady", or "paper": ten steps, of which the last five count
        limit_s: seconds to load, and again to measure
        seed: of initial values and inputs

    Raises ValueError for an invalid workload or an illegal placement, MeasurementError if the step does not run, or
    runs wrong.
    """
    from gnnplace.execution.host import Host
    from gnnplace.execution.measure import Placed, first_device, measured_step
    from gnnplace.execution.timing import PROTOCOLS, ProtocolName
    from gnnplace.sources.workload import LOADER

    if protocol not in PROTOCOLS:
        raise ValueError(strict_json.unknown("protocol", protocol, tuple(PROTOCOLS)))
    named: ProtocolName = "paper" if protocol == "paper" else "steady"
    machine = cluster if isinstance(cluster, Cluster) else sources.cluster(cluster)
    with Host(LOADER, workload, seed, limit_s=limit_s) as host:
        problem = roofline.problem(host.graph, machine)
        placed, reference = (Placed(*_of_step(problem, each)) for each in (placement, against or first_device))
        return measured_step(host, placed, reference, PROTOCOLS[named], limit_s)


def placed(step: TorchStep | TorchInference, plan: Placement, *, seed: int = 0, check: bool = False) -> PlacedModule:
    """The step's module on the devices of a plan of the step, to be trained in a loop of your own, or to infer.

    It is a `torch.nn.Module` with the parameters, buffers and names of the step's module, which move to their readers'
    devices. For a `TorchStep` a call returns the loss; its `backward()` gives the parameters their gradients, and any
    optimiser may change them in place. For a `TorchInference` a call returns the output in eval mode. It runs what
    `measure` times, without updates: a CPU device is a process on its own core, a GPU streams. `close` or `with` ends
    it.

    Args:
        step: the step of the plan's problem; its optimiser is not used
        plan: from `gp.place`, or `gp.Plan.of(problem, placement)`
        seed: of random ops (dropout), besides the number of the call and the op
        check: whether the first call is compared with the unplaced one, in this host's memory: loss and gradients, or
            outputs, and buffers afterwards. It costs one more forward and backward pass; use it for every new network

    Raises ValueError (one line) for a plan of another step, for fused ops, and for a module on the meta device; in a
    call for inputs of other shapes or types, and for a replaced tensor. Raises MeasurementError for missing cores or
    GPUs, if a device fails, and if `check` finds more than rounding: then all processes end.

        >>> import gnnplace as gp, torch
        >>> net = torch.nn.Linear(4, 1)
        >>> step = gp.TorchStep(net, lambda net, x: net(x).square().mean(), (torch.zeros(8, 4),))
        >>> plan = gp.place(gp.problem(step, cluster="here"), "heft")
        >>> with gp.placed(step, plan) as model:
        ...     optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ...     x, losses = torch.rand(8, 4), []
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         losses.append(model(x))
        ...         losses[-1].backward()
        ...         optimizer.step()
        >>> bool(losses[0] > losses[1] > losses[2]), next(iter(model.state_dict()))
        (True, 'weight')
    """
    from gnnplace.execution.torch import placed as torch_placed

    _require_step_and_plan(step, plan)
    assert isinstance(plan, Plan)
    return torch_placed.placed(step, plan.problem, plan, seed, check)


def _require_step_and_plan(step: object, plan: object) -> None:
    """Raises ValueError unless `placed` can run the step as the plan says."""
    from gnnplace.frontends.torch.step import TorchInference, TorchStep

    if not isinstance(step, TorchStep | TorchInference):
        raise ValueError(
            f"step: a {type(step).__name__} is no TorchStep or TorchInference, which hold a module with its inputs"
        )
    if not isinstance(plan, Plan):
        raise ValueError(
            f"plan: a {type(plan).__name__} does not know its problem; give gp.Plan.of(problem, placement)"
        )


def _of_step(problem: Problem, given: Placement | Planner) -> tuple[Problem, Placement]:
    """A placement with its problem: that of the workload or, of a plan of another form, that of this form.

    Raises ValueError for a plan of another step, and of another number of micro-batches, which the workload says.
    """
    placement, graph = given if isinstance(given, Placement) else given(problem), problem.graph
    if not isinstance(placement, Plan):
        return problem, placement
    form = Parallelism.in_graph(placement.problem.graph)
    if form.micro_batches != graph.micro_batches:
        raise ValueError(
            f"micro_batches: {form.micro_batches} is not {graph.micro_batches}, that of the workload; its "
            "TorchStep(..., micro_batches=...) says it"
        )
    posed = roofline.problem(form.of(graph), problem.cluster)
    if posed.graph.op_names != placement.problem.graph.op_names:
        raise ValueError(f"placement: of {placement.problem.graph.name!r}, which has other ops than the workload")
    return posed, placement
