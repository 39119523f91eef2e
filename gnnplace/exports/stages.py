"""The `split_spec` of `torch.distributed.pipelining`: where the stages of a pipeline begin.

A pipeline of PyTorch cuts the forward pass at calls of modules, once each, and every process runs one stage. So it can say a placement in
which the modules of each device follow one another, later stages read no inputs but those of the loss, and none reads a parameter of
another. Code outside modules runs in the stage that calls it.
"""

from __future__ import annotations

import json
from itertools import groupby, takewhile
from typing import NamedTuple

import numpy as np

from gnnplace.exports.device_map import module_devices, target_names
from gnnplace.exports.refusal import UnsayableError, listed
from gnnplace.frontends.torch.scopes import LOSS_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules

TARGET = "torch-pipelining"
ONE_DEVICE = "--devices with one device would"


class _Stage(NamedTuple):
    device: int
    modules: tuple[str, ...]  # in the order in which they begin


def torch_pipelining(problem: Problem, placement: Placement) -> str:
    """JSON with `devices`, those of the stages, and `split_spec`, the modules at whose beginning all stages but the first start.

    Raises UnsayableError where a module is split, a device has several stages, a stage begins outside all modules, a module runs again
    after a later stage has begun, a later stage reads an input, and where stages share a parameter.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> torch_pipelining(problem, gp.place(problem, "gpu")).split()
        ['{', '"devices":', '[', '"cuda:0"', '],', '"split_spec":', '{}', '}']
    """
    of_module = module_devices(problem, placement, TARGET, "stage")
    found = [_Stage(device, tuple(name for name, _ in run)) for device, run in groupby(of_module.items(), key=lambda item: item[1])]
    _check_once(problem, found)
    first = [stage.modules[0] for stage in found[1:]]
    if unnamed := [name for name in first if name in (LOSS_LAYER, ROOT_LAYER)]:
        raise UnsayableError(f"{TARGET}: a stage begins with a module, and {listed(unnamed)} is code outside all of them")
    _check_order(problem.graph, found)
    _check_inputs(problem.graph, placement, found)
    _check_parameters(problem, placement)
    names = target_names(problem.cluster)
    devices = [name if isinstance(name := names[stage.device], str) else f"cuda:{name}" for stage in found]
    return json.dumps({"devices": devices, "split_spec": dict.fromkeys(first, "BEGINNING")}, indent=1) + "\n"


def _check_once(problem: Problem, found: list[_Stage]) -> None:
    seen: set[int] = set()
    for before, stage in zip([None, *found], found, strict=False):
        if stage.device in seen and before is not None:
            again, other = (problem.cluster.device_names[each.device] for each in (stage, before))
            raise UnsayableError(
                f"{TARGET}: a device runs one stage, and {stage.modules[0]} is on {again} again, after {before.modules[-1]} on {other}; "
                "place with --granularity stage"
            )
        seen.add(stage.device)


def _check_order(graph: ComputationGraph, found: list[_Stage]) -> None:
    """Raises UnsayableError where a module runs after a later stage has begun, or one that a stage begins with runs several times."""
    stage_of = {name: number for number, stage in enumerate(found) for name in stage.modules}
    calls = [name for name, _ in groupby(_running(graph, stage_of))]
    now = 0
    for name in calls:
        if stage_of[name] < now:
            raise UnsayableError(
                f"{TARGET}: a stage runs once, and {name} runs again after {found[now].modules[0]}, where the next one begins; "
                f"{_together(name, found[now].modules[0])}"
            )
        now = stage_of[name]
    repeated = [stage.modules[0] for stage in found[1:] if calls.count(stage.modules[0]) > 1]
    if repeated:
        raise UnsayableError(f"{TARGET}: a stage begins at every call of its first module, and {listed(repeated)} runs several times")


def _running(graph: ComputationGraph, stage_of: dict[str, int]) -> list[str]:
    """The module of each op that computes in the forward pass, in their order."""
    forward = graph.kernel & (graph.layer.index != NONE) & ~graph.phase.among(["backward_data", "backward_weight", "update"])
    return [name for op in np.flatnonzero(forward).tolist() if (name := graph.layer[op]) in stage_of]


def _check_inputs(graph: ComputationGraph, placement: Placement, found: list[_Stage]) -> None:
    """Raises UnsayableError where a later stage reads an input: PyTorch gives all but the loss's to the first (2.13)."""
    given = (
        graph.canonical_kind.among(["input"])[graph.edge_src] & (graph.edge_data != NONE) & ~graph.layer.among([LOSS_LAYER])[graph.edge_dst]
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
    forward = ~graph.phase.among(["backward_data", "backward_weight", "update"])[reader]
    shared = (graph.persistent_bytes[holder] > 0) & trained[holder] & forward & (placement.device[holder] != placement.device[reader])
    pairs = {(found.names[found.module[a]], found.names[found.module[b]]) for a, b in zip(holder[shared], reader[shared], strict=True)}
    if pairs:
        farthest = min(pairs, key=lambda pair: (len(_around(*pair)), pair))
        told = listed([f"{other} reads that of {owner}" for owner, other in sorted(pairs, key=lambda pair: (pair != farthest, pair))])
        raise UnsayableError(f"{TARGET}: a parameter is in one stage, and {told}, in another stage; {_together(*farthest)}")


def _together(module: str, other: str) -> str:
    """What keeps two modules on one device.

    >>> _together("layers.0.input", "layers.1.hidden"), _together("wte", "head")
    ('place with --keep-whole layers', 'no granularity would do, --devices with one device would')
    """
    around = _around(module, other)
    return f"place with --keep-whole {'.'.join(around)}" if around else f"no granularity would do, {ONE_DEVICE}"


def _around(module: str, other: str) -> list[str]:
    """The parts of the innermost module that two are in."""
    pairs = zip(module.split("."), other.split("."), strict=False)
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
