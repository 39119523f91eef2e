"""The `split_spec` of `torch.distributed.pipelining`: where the stages of a pipeline begin.

A pipeline of PyTorch cuts the forward pass at calls of modules, once each, and every process runs one stage. So it can
say a placement in which the modules of each device follow one another, later stages read no inputs but those of the
loss, none reads a parameter of another, and in training each reads of the one before alone. Code outside modules runs
in the stage that calls it. PyTorch's own tracer cuts the module before a split_spec is written, where it is at hand.
"""

from __future__ import annotations

import json
import warnings
from itertools import groupby
from typing import NamedTuple

import numpy as np

from gnnplace.exports.homes import LATER, module_devices, target_names
from gnnplace.exports.refusal import ONE_DEVICE, Tried, UnsayableError, around, listed, together, whole
from gnnplace.exports.trial import Say, Trial, tried
from gnnplace.frontends.origin import LOSS_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules

TARGET = "torch-pipelining"


class _Stage(NamedTuple):
    device: int
    modules: tuple[str, ...]  # in the order in which they begin


def torch_pipelining(
    problem: Problem, placement: Placement, say: Say = warnings.warn, trial: Trial | None = None
) -> str:
    """JSON with `devices`, those of the stages, and `split_spec`, the modules at whose beginning all stages but the
    first start.

    Raises UnsayableError where a module is split, a device has several stages, a stage begins outside all modules or
    with one that is never called, a module runs again after a later stage has begun, a later stage reads an input, in
    training also what a stage before the last one made, where stages share a parameter, and for what PyTorch's tracer
    does not cut so. `say` is told where that could not be tried.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> torch_pipelining(problem, gp.place(problem, "gpu"), print).split()
        torch-pipelining: not tried, only checked by the graph, whose module is not at hand
        ['{', '"devices":', '[', '"cuda:0"', '],', '"split_spec":', '{}', '}']
    """
    of_module = module_devices(problem, placement, TARGET, "stage")
    found = [
        _Stage(device, tuple(name for name, _ in run))
        for device, run in groupby(of_module.items(), key=lambda item: item[1])
    ]
    _check_once(problem, found)
    first = [stage.modules[0] for stage in found[1:]]
    if unnamed := [name for name in first if name in (LOSS_LAYER, ROOT_LAYER)]:
        raise UnsayableError(
            f"{TARGET}: a stage begins with a module, and {listed(unnamed)} is code outside all of them"
        )
    _check_order(problem.graph, found)
    _check_inputs(problem.graph, placement, found)
    _check_parameters(problem, placement)
    _check_skips(problem.graph, found)
    _try(problem, first, say, trial)
    names = target_names(problem.cluster)
    devices = [name if isinstance(name := names[stage.device], str) else f"cuda:{name}" for stage in found]
    return json.dumps({"devices": devices, "split_spec": dict.fromkeys(first, "BEGINNING")}, indent=1) + "\n"


def _try(problem: Problem, first: list[str], say: Say, trial: Trial | None) -> None:
    """Raises UnsayableError for what PyTorch's tracer does not cut, or its stages don't take."""
    came: Tried = trial(TARGET, first) if trial else tried(problem.graph, TARGET, first)
    if came.fault:
        raise UnsayableError(
            f"{TARGET}: PyTorch doesn't run it so: {came.fault.what}; no granularity would do, {ONE_DEVICE}"
        )
    if came.untried:
        say(f"{TARGET}: not tried, only checked by the graph, {came.untried}")


def _check_once(problem: Problem, found: list[_Stage]) -> None:
    seen: set[int] = set()
    for before, stage in zip([None, *found], found, strict=False):
        if stage.device in seen and before is not None:
            again, other = (problem.cluster.device_names[each.device] for each in (stage, before))
            raise UnsayableError(
                f"{TARGET}: a device runs one stage, and {stage.modules[0]} is on {again} again, after "
                f"{before.modules[-1]} on {other}; "
                "place with --granularity stage"
            )
        seen.add(stage.device)


def _check_order(graph: ComputationGraph, found: list[_Stage]) -> None:
    """Raises UnsayableError where a module runs after a later stage has
    begun, or one that a stage begins with runs several times.
    """
    stage_of = {name: number for number, stage in enumerate(found) for name in stage.modules}
    calls = [name for name, _ in groupby(_running(graph, stage_of))]
    if never := [stage.modules[0] for stage in found[1:] if stage.modules[0] not in calls]:
        raise UnsayableError(
            f"{TARGET}: a stage begins with a module that is called, and {listed(never)} never is; {ONE_DEVICE}"
        )
    now = 0
    for name in calls:
        if stage_of[name] < now:
            raise UnsayableError(
                f"{TARGET}: a stage runs once, and {name} runs again after {found[now].modules[0]}, where the next "
                "one begins; "
                f"{together(name, found[now].modules[0])}"
            )
        now = stage_of[name]
    repeated = [stage.modules[0] for stage in found[1:] if calls.count(stage.modules[0]) > 1]
    if repeated:
        raise UnsayableError(
            f"{TARGET}: a stage begins at every call of its first module, and {listed(repeated)} runs several times; "
            f"{whole(repeated, 'stage')}"
        )


def _running(graph: ComputationGraph, stage_of: dict[str, int]) -> list[str]:
    """The module of each op that computes in the forward pass, in their order."""
    forward = graph.kernel & (graph.layer.index != NONE) & ~graph.phase.among(LATER)
    return [name for op in np.flatnonzero(forward).tolist() if (name := graph.layer[op]) in stage_of]


def _check_inputs(graph: ComputationGraph, placement: Placement, found: list[_Stage]) -> None:
    """Raises UnsayableError where a later stage reads an input or a view of
    one: PyTorch gives all but the loss's to the first (2.13).
    """
    # the last is for control edges
    inputs = np.append(graph.canonical_kind.among(["input"])[graph.output_op[graph.output_root]], False)
    given = (
        inputs[graph.edge_data]
        & ~graph.layer.among([LOSS_LAYER])[graph.edge_dst]
        & ~graph.phase.among(LATER)[graph.edge_dst]
    )
    readers = graph.edge_dst[given & (placement.device[graph.edge_dst] != found[0].device)]
    if len(readers):
        names = list(dict.fromkeys(modules(graph).names[module] for module in modules(graph).module[readers].tolist()))
        raise UnsayableError(
            f"{TARGET}: the first stage alone takes inputs, and modules of later ones read some: {listed(names)}; "
            f"no granularity would do, {ONE_DEVICE}"
        )


def _check_parameters(problem: Problem, placement: Placement) -> None:
    """Raises UnsayableError where a stage reads a parameter of another: each would train its own copy."""
    graph, found = problem.graph, modules(problem.graph)
    data = np.flatnonzero(graph.edge_data != NONE)
    holder, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    trained = np.zeros(graph.num_ops, dtype=bool)
    trained[holder[graph.phase.among(["update"])[reader]]] = True
    forward = ~graph.phase.among(LATER)[reader]
    shared = (
        (graph.persistent_bytes[holder] > 0)
        & trained[holder]
        & forward
        & (placement.device[holder] != placement.device[reader])
    )
    pairs = {
        (found.names[found.module[a]], found.names[found.module[b]])
        for a, b in zip(holder[shared], reader[shared], strict=True)
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


def _check_skips(graph: ComputationGraph, found: list[_Stage]) -> None:
    """Raises UnsayableError where a stage of a training step reads what an earlier one than that before made (2.13)."""
    later, made = graph.phase.among(LATER), modules(graph)
    stage_of = {name: number for number, stage in enumerate(found) for name in stage.modules}
    stage = np.array([stage_of[name] for name in made.names])[made.module]
    data = np.flatnonzero(
        (graph.edge_data != NONE) & ~later[graph.edge_dst] & ~graph.layer.among([LOSS_LAYER])[graph.edge_dst]
    )
    maker, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    computed = graph.kernel[maker] & graph.kernel[reader] & (graph.persistent_bytes[maker] == 0)
    skips = np.flatnonzero(computed & (stage[reader] > stage[maker] + 1) & later.any())
    if len(skips):
        first, other = (made.names[made.module[op[skips[0]]]] for op in (maker, reader))
        raise UnsayableError(
            f"{TARGET}: a gradient goes to the stage before alone, and {other} reads what {first} makes, several "
            "stages before; "
            f"{together(first, other)}"
        )
