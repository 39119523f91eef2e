"""The stages of a placement as `torch.distributed.pipelining` cuts them, and what it can't cut.

PyTorch cuts the forward pass at calls of modules, once each. So stages are runs of modules on one device, only the
first stage reads inputs (those of the loss aside), no stage reads a parameter of another, and, in training, a stage
reads only from the stage before it. Code outside modules runs in the stage that calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.frontends.origin import LOSS_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.homes import LATER, module_devices
from gnnplace.runtimes.refusal import ONE_DEVICE, UnsayableError, around, listed, together, whole
from gnnplace.units.modules import modules

TARGET = "torch-pipelining"


class ModuleRun(NamedTuple):
    """Successive modules of one device."""

    device: int
    modules: tuple[str, ...]  # in the order in which they begin


class PipelineCut(NamedTuple):
    """The stages in their order, and the number of the stage of every op."""

    rows: tuple[ModuleRun, ...]
    of_op: Int64[np.ndarray, " ops"]

    def undivided(self, graph: ComputationGraph) -> list[int]:
        """The stages whose gradients of weights PyTorch can't compute later than those of inputs (2.13).

        It detaches what a stage sends from what computed it, and can't read that again.
        """
        data = np.flatnonzero(graph.edge_data != NONE)
        output, source, reader = graph.edge_data[data], graph.edge_src[data], graph.edge_dst[data]
        later, root = graph.phase.among(LATER), graph.output_root
        sent = np.zeros(len(root), dtype=bool)
        crosses = (self.of_op[source] != self.of_op[reader]) & ~later[reader] & graph.kernel[source]
        sent[root[output[crosses]]] = True
        again = sent[root[output]] & later[reader] & (self.of_op[source] == self.of_op[reader])
        return sorted(set(self.of_op[reader[again]].tolist()))

    @property
    def firsts(self) -> list[str]:
        """The first module of each stage but the first."""
        return [stage.modules[0] for stage in self.rows[1:]]


def stages(problem: Problem, placement: Placement, several: bool = False) -> PipelineCut:
    """The stages of a placed step of one micro-batch; a device has one, or `several`.

    Raises UnsayableError if a module is split; a device has several stages and may not; a stage begins outside all
    modules, or with a module that is never called or runs several times; a module runs again after a later stage has
    begun; a later stage reads an input; in training, a stage reads from an earlier stage than the one before it; or
    stages share a parameter.
    """
    of_module = module_devices(problem, placement, TARGET, "stage")
    rows = tuple(
        ModuleRun(device, tuple(name for name, _ in run))
        for device, run in groupby(of_module.items(), key=lambda item: item[1])
    )
    number = {name: place for place, stage in enumerate(rows) for name in stage.modules}
    module_of = modules(problem.graph)
    cut = PipelineCut(rows, np.array([number[name] for name in module_of.names])[module_of.module])
    if not several:
        _check_once(problem, rows)
    if unnamed := [name for name in cut.firsts if name in (LOSS_LAYER, ROOT_LAYER)]:
        raise UnsayableError(
            f"{TARGET}: a stage begins with a module, and {listed(unnamed)} is code outside all of them; no "
            f"granularity would do, {ONE_DEVICE}"
        )
    _check_order(problem.graph, rows)
    _check_inputs(problem.graph, cut.of_op)
    _check_parameters(problem.graph, cut.of_op)
    _check_skips(problem.graph, cut.of_op)
    return cut


def _check_once(problem: Problem, stages: Sequence[ModuleRun]) -> None:
    """Raises UnsayableError if a device has several stages."""
    names = problem.cluster.device_names
    used = {stages[0].device}
    for before, stage in pairwise(stages):
        if stage.device in used:
            raise UnsayableError(
                f"{TARGET}: a device runs one stage, and {stage.modules[0]} is on {names[stage.device]} again, after "
                f"{before.modules[-1]} on {names[before.device]}; place with --granularity stage"
            )
        used.add(stage.device)


def _check_order(graph: ComputationGraph, stages: Sequence[ModuleRun]) -> None:
    """Raises UnsayableError if a module runs after a later stage has begun, or if the first module of a stage doesn't
    run exactly once.
    """
    stage_of = {name: number for number, stage in enumerate(stages) for name in stage.modules}
    calls = [name for name, _ in groupby(_running(graph, stage_of))]
    if never := [stage.modules[0] for stage in stages[1:] if stage.modules[0] not in calls]:
        raise UnsayableError(
            f"{TARGET}: a stage begins with a module that is called, and {listed(never)} never is; {ONE_DEVICE}"
        )
    now = 0
    for name in calls:
        if stage_of[name] < now:
            raise UnsayableError(
                f"{TARGET}: a stage runs once, and {name} runs again after {stages[now].modules[0]}, where the next "
                f"one begins; {together(name, stages[now].modules[0])}"
            )
        now = stage_of[name]
    repeated = [stage.modules[0] for stage in stages[1:] if _times(stage.modules[0], calls) > 1]
    if repeated:
        raise UnsayableError(
            f"{TARGET}: a stage begins at every call of its first module, and {listed(repeated)} runs several times; "
            f"{whole(repeated, 'stage')}"
        )


def _times(module: str, calls: list[str]) -> int:
    """How often a module runs among these calls; its code before and after the modules within it is one run.

    >>> _times("a", ["a", "a.b", "a", "c", "a.b"])
    2
    """
    return sum(is_within for is_within, _ in groupby(f"{name}.".startswith(f"{module}.") for name in calls))


def _running(graph: ComputationGraph, stage_of: dict[str, int]) -> list[str]:
    """The module of each op that computes in the forward pass, in the order of the ops."""
    forward = graph.kernel & (graph.layer.index != NONE) & ~graph.phase.among(LATER)
    return [name for op in np.flatnonzero(forward).tolist() if (name := graph.layer[op]) in stage_of]


def _check_inputs(graph: ComputationGraph, stage: Int64[np.ndarray, " ops"]) -> None:
    """Raises UnsayableError if a later stage reads an input or a view of one.

    PyTorch gives all inputs but those of the loss to the first stage (2.13).
    """
    # control edges have data -1, which selects the last element
    inputs = np.append(graph.canonical_kind.among(["input"])[graph.output_op[graph.output_root]], False)
    given = (
        inputs[graph.edge_data]
        & ~graph.layer.among([LOSS_LAYER])[graph.edge_dst]
        & ~graph.phase.among(LATER)[graph.edge_dst]
    )
    readers = graph.edge_dst[given & (stage[graph.edge_dst] > 0)]
    if len(readers):
        names = list(dict.fromkeys(modules(graph).names[module] for module in modules(graph).module[readers].tolist()))
        raise UnsayableError(
            f"{TARGET}: the first stage alone takes inputs, and modules of later ones read some: {listed(names)}; "
            f"no granularity would do, {ONE_DEVICE}"
        )


def _check_parameters(graph: ComputationGraph, stage: Int64[np.ndarray, " ops"]) -> None:
    """Raises UnsayableError if a stage reads a parameter of another stage: each would train its own copy."""
    module_of = modules(graph)
    data = np.flatnonzero(graph.edge_data != NONE)
    holder, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    trained = np.zeros(graph.num_ops, dtype=bool)
    trained[holder[graph.phase.among(["update"])[reader]]] = True
    forward = ~graph.phase.among(LATER)[reader]
    shared = (graph.persistent_bytes[holder] > 0) & trained[holder] & forward & (stage[holder] != stage[reader])
    pairs = {
        (module_of.names[module_of.module[owner]], module_of.names[module_of.module[other]])
        for owner, other in zip(holder[shared], reader[shared], strict=True)
    }
    if pairs:
        farthest = min(pairs, key=lambda pair: (len(around(*pair)), pair))
        told = listed(
            [
                f"{other} reads that of {owner}"
                for owner, other in sorted(pairs, key=lambda pair: (pair != farthest, pair))
            ]
        )
        raise UnsayableError(
            f"{TARGET}: a parameter is in one stage, and {told}, in another stage; {together(*farthest)}"
        )


def _check_skips(graph: ComputationGraph, stage: Int64[np.ndarray, " ops"]) -> None:
    """Raises UnsayableError if a stage of a training step reads from an earlier stage than the one before it (2.13)."""
    later, module_of = graph.phase.among(LATER), modules(graph)
    data = np.flatnonzero(
        (graph.edge_data != NONE) & ~later[graph.edge_dst] & ~graph.layer.among([LOSS_LAYER])[graph.edge_dst]
    )
    maker, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    computed = graph.kernel[maker] & graph.kernel[reader] & (graph.persistent_bytes[maker] == 0)
    skips = np.flatnonzero(computed & (stage[reader] > stage[maker] + 1) & later.any())
    if len(skips):
        first, other = (module_of.names[module_of.module[op[skips[0]]]] for op in (maker, reader))
        raise UnsayableError(
            f"{TARGET}: a gradient goes to the stage before alone, and {other} reads what {first} makes, several "
            f"stages before; {together(first, other)}"
        )
