"""Runtimes: programs that execute a placed step, each with rules and an order of its own.

`executed` puts both into the graph of a problem: what a runtime keeps together are colocation groups, devices that it
can't use are not allowed, and its order are control edges: all kernels wait for one another where devices run in turn,
those of a part where one program starts them all. So planners, searches, policies and bounds plan the step
that will run, without knowing of runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.choices import Granularity, RuntimeName
from gnnplace.cluster import Cluster
from gnnplace.costs.roofline import times_ns
from gnnplace.formats import strict_json
from gnnplace.graph import NONE, Categorical, ComputationGraph, Executed
from gnnplace.problems import Problem, allowed_on
from gnnplace.runtimes import accelerate, pipelining
from gnnplace.runtimes.homes import LATER, foreign
from gnnplace.runtimes.parts import Together
from gnnplace.runtimes.refusal import listed
from gnnplace.schedules.in_order import in_order
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.modules import of_pytorch
from gnnplace.units.whole import tied


class Runtime(NamedTuple):
    """The rules of a runtime; by default it runs every placement as the simulator does.

    `kept_together` gives each op's part, which stands on one device, and the part on the main device. `kinds` are the
    kinds of devices that it has a program for. `accelerators`: it computes on accelerators or on CPUs, never on both,
    and `one_cpu`: on one CPU at most.
    `in_turn`: it runs one device after another, always or in inference. `granularity`: what it may cut at the finest.
    `several`: it runs several micro-batches a step.
    """

    kept_together: Callable[[ComputationGraph], Together] | None = None
    kinds: tuple[str, ...] = ()
    accelerators: bool = False
    one_cpu: bool = False
    in_turn: Literal["always", "inference"] | None = None
    granularity: Granularity = "op"
    several: bool = False


IN_TURN = (
    "one device after another: of equal devices several are no faster than one that holds everything; they help a "
    "model that fits on none"
)
RUNTIMES: dict[RuntimeName, Runtime] = {
    "accelerate": Runtime(accelerate.kept_together, accelerators=True, one_cpu=True, in_turn="inference"),
    "onnxruntime": Runtime(kinds=("cpu", "gpu"), in_turn="always"),
    "openvino": Runtime(kinds=("cpu", "gpu", "npu"), one_cpu=True, in_turn="always"),
    "placed": Runtime(several=True),
    "tensorflow": Runtime(),
    "torch-pipelining": Runtime(pipelining.kept_together, accelerators=True, granularity="stage", several=True),
}


def executed(graph: ComputationGraph, cluster: Cluster, named: str, micro_batches: int = 1) -> ComputationGraph:
    """The graph with the rules of the runtime `named`, of which a step of so many micro-batches will be made.

    Raises ValueError for an unknown runtime, for several micro-batches if it runs one a step, and if it can use no
    device of the cluster.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2", runtime="accelerate")
    >>> gp.granularity(problem, gp.place(problem, "heft")), problem.graph.runtime
    ('stage', 'accelerate')
    """
    name = next((each for each in RUNTIMES if each == named), None)
    if name is None:
        raise ValueError(f"runtime: {strict_json.unknown('runtime', named, tuple(RUNTIMES))}")
    runtime = RUNTIMES[name]
    if runtime.kept_together is not None and not of_pytorch(graph.original):
        raise ValueError(
            f"runtime: {name} runs modules of PyTorch, and the ops of {graph.name} are not ({listed(foreign(graph))})"
        )
    if graph.copies is not None:
        form = Parallelism.in_graph(graph)
        return form.of(executed(graph.original, cluster, name, form.micro_batches))
    if micro_batches > 1 and not runtime.several:
        several = ", ".join(other for other, each in RUNTIMES.items() if each.several)
        raise ValueError(
            f"runtime: {name} runs one micro-batch a step, and this step has {micro_batches}; {several} run several"
        )
    # devices of a step of several micro-batches are constrained: variables that are allowed on some have copies apart
    ruled = graph if runtime.several else replace(graph, allowed=_allowed(graph, cluster, name, runtime))
    line = np.zeros(graph.num_ops, dtype=np.int32) if _runs_in_turn(graph, runtime) else None
    if runtime.kept_together is not None:
        part, main = runtime.kept_together(graph)
        ruled = tied(ruled, part)
        if line is None and runtime.granularity == "op":
            line = part.astype(np.int32)
        if main != NONE:
            ruled = replace(ruled, allowed=_on_first(ruled, cluster, part == main))
    if line is not None:
        ruled = in_order(ruled, line, _program(graph))
    return replace(ruled, executed=Executed(name, graph, runtime.granularity, runtime.several and runtime.accelerators))


def ran_by(problem: Problem, name: RuntimeName) -> Problem:
    """The problem with the rules of a runtime, with the same times. Raises ValueError as `executed` does."""
    graph = problem.graph
    if graph.runtime == name:
        return problem
    form = Parallelism.in_graph(graph)
    return _posed(problem, form.of(executed(graph.plain, problem.cluster, name, form.micro_batches)))


def plain(problem: Problem) -> Problem:
    """The problem without the rules of its runtime."""
    graph = problem.graph
    if graph.runtime is None:
        return problem
    return _posed(problem, Parallelism.in_graph(graph).of(graph.plain))


def _posed(problem: Problem, graph: ComputationGraph) -> Problem:
    """The problem of another graph of the step: ops take the times of those of their names, added ones roofline times.

    Sums and rings of replicas may have other buckets under the same names.
    """
    number = {name: op for op, name in enumerate(problem.graph.op_names)}
    row = np.array([number.get(name, NONE) for name in graph.op_names])
    alone, contended = times_ns(graph, problem.cluster)
    added = np.zeros(graph.num_ops, dtype=bool) if graph.copies is None else graph.copies.added
    new = ((row == NONE) | added)[:, None]
    time_ns = np.where(new, alone, problem.time_ns[row])
    if problem.contended_ns is None:
        return Problem(graph, problem.cluster, time_ns)
    slower = alone if contended is None else contended
    return Problem(graph, problem.cluster, time_ns, np.where(new, slower, problem.contended_ns[row]))


def in_turn(graph: ComputationGraph) -> bool:
    """Whether the runtime of a graph runs its devices one after another."""
    executed = graph.original.executed
    return executed is not None and _runs_in_turn(graph, RUNTIMES[executed.runtime])


def _runs_in_turn(graph: ComputationGraph, runtime: Runtime) -> bool:
    trains = bool(graph.phase.among(LATER).any())
    return runtime.in_turn == "always" or (runtime.in_turn == "inference" and not trains)


def _allowed(graph: ComputationGraph, cluster: Cluster, name: RuntimeName, runtime: Runtime) -> Categorical:
    """The devices where each op may stand, by name; the graph's own column if a runtime can use all devices."""
    usable = [device for device in cluster.devices if not runtime.kinds or device.kind in runtime.kinds]
    accelerators = [device for device in usable if device.kind != "cpu"]
    if runtime.accelerators and accelerators:
        usable = accelerators
    elif runtime.one_cpu:
        cpus = [device for device in usable if device.kind == "cpu"]
        usable = [device for device in usable if device not in cpus[1:]]
    if not usable:
        raise ValueError(f"runtime: {name} runs on {', '.join(runtime.kinds)}, and {cluster.name} has none of these")
    if len(usable) == cluster.num_devices:
        return graph.allowed
    listed = [None if value is None else set(value.split(",")) for value in (*graph.allowed.values, None)]
    named = [
        ",".join(device.name for device in usable if among is None or among & {device.name, device.kind})
        for among in listed
    ]
    return Categorical.of(named[index] for index in graph.allowed.index.tolist())


def _on_first(graph: ComputationGraph, cluster: Cluster, main: Bool[np.ndarray, " ops"]) -> Categorical:
    """The allowed devices where the `main` ops stand on the first device that is allowed for all of them."""
    named = ((device.name, allowed_on(graph, device.name, device.kind)[main].all()) for device in cluster.devices)
    first = next((name for name, may in named if may), None)
    return Categorical.of(first if main[op] and first else graph.allowed[op] for op in range(graph.num_ops))


def _program(graph: ComputationGraph) -> Int32[np.ndarray, " kernels"]:
    """The kernels in the order of the program: that of the document, where it is topological."""
    order = graph.order if (graph.edge_src >= graph.edge_dst).any() else np.arange(graph.num_ops, dtype=np.int32)
    return order[graph.kernel[order]]
