"""Files for `torch.distributed.pipelining`: of one micro-batch where stages begin, of several also the planned order.

The order is the CSV that PyTorch's runtime and torchtitan load, a row for each process: 0F3 is the forward pass of
micro-batch 3 over stage 0, I and W are its gradients of inputs and of weights, B both. A script beside it trains the
stages in this order. If the module is at hand, PyTorch's own tracer cuts it before anything is written.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.pipelines.actions import Action, Table
from gnnplace.baselines.pipelines.orders import placed
from gnnplace.baselines.pipelines.rows import of_one_micro_batch
from gnnplace.exports.assignments import checked, device_of, known_as
from gnnplace.exports.data_parallel import data_parallel
from gnnplace.exports.pipeline_order import order_of
from gnnplace.exports.stages import TARGET, PipelineCut, stages
from gnnplace.exports.trial import Say, Trial, module_names, tried
from gnnplace.graph import NONE, Copies
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.homes import of_torch, process_devices
from gnnplace.runtimes.refusal import ONE_DEVICE, TrialResult, UnsayableError, listed
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules

if TYPE_CHECKING:
    from gnnplace.exports.targets import Model

SCRIPT = Path(__file__).with_name("run_pipeline.py")
LETTERS = {"F": "F", "B": "I", "W": "W", "BW": "B"}  # PyTorch's, of the kinds of actions
OR_HERE = "; gp.placed and gnnplace measure run the step as it is planned"
SAID = 0.001  # of a step: what keeping whole passes in turn changes it by before that is said


def torch_pipelining(
    problem: Problem, placement: Placement, say: Say = warnings.warn, trial: Trial | None = None
) -> str | Mapping[str, str]:
    """JSON with the `devices` of the stages and the `split_spec`: the first module of each stage but the first.

    Of several micro-batches, a folder: `plan.json`, with the stages of each process, too; `schedule.csv`, or one for
    each replica; `run.py`. Of replicas on a device each, and of shards, the folder is that of `data_parallel`.
    Raises UnsayableError if PyTorch can't cut the module so (`stages`), and, of several micro-batches, for an op whose
    copies stand on several devices of a replica, for replicas that are cut in different places, and for passes that
    wait for each other. `say` receives one line if the tracer could not be tried, and one on what keeps the planned
    step time from being that of the export.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> torch_pipelining(problem, gp.place(problem, "gpu"), print).split()
        torch-pipelining: not tried, only checked by the graph, whose module is not at hand
        ['{', '"devices":', '[', '"cuda:0"', '],', '"split_spec":', '{}', '}']
    """
    if problem.graph.copies is None:
        cut = stages(problem, placement)
        _try(problem, cut.firsts, say, trial)
        devices = of_torch(problem.cluster, [stage.device for stage in cut.rows])
        return _text({"devices": devices, "split_spec": dict.fromkeys(cut.firsts, "BEGINNING")})
    try:
        copied = data_parallel(TARGET, problem, placement, say)
        return copied or _pipeline(problem, problem.graph.copies, placement, say, trial)
    except UnsayableError as unsayable:
        raise UnsayableError(f"{unsayable}{OR_HERE}") from unsayable


def assigned_torch_pipelining(
    problem: Problem, document: object, model: Model | None, trial: Trial | None
) -> Placement:
    """The placement of a `split_spec` with the devices of its stages, of one micro-batch.

    Raises ValueError for another document, unknown modules, and another number of devices than of stages.
    """
    parts = checked(document, dict[str, Any], "split_spec with devices")
    split = checked(parts.get("split_spec"), dict[str, Literal["BEGINNING", "END"]], "split_spec with devices")
    devices = checked(parts.get("devices"), list[str | int], "split_spec with devices")
    module_of = modules(problem.graph.original)
    known_as(split, [*module_names(problem.graph.plain, trial), *module_of.names], "module")
    if len(devices) != len(split) + 1:
        raise ValueError(f"has {len(split) + 1} stages and {len(devices)} devices")
    stage = np.zeros(module_of.num_modules, dtype=np.int64)
    for name, at in split.items():
        inside = [number for number, each in enumerate(module_of.names) if f"{each}.".startswith(f"{name}.")]
        if inside:
            stage[inside[0] if at == "BEGINNING" else inside[-1] + 1 :] += 1
    device = np.array([device_of(problem, name) for name in devices], dtype=np.int32)
    source = np.arange(problem.num_ops) if problem.graph.copies is None else problem.graph.copies.source
    return Placement(device[stage[module_of.module]][source])


def _pipeline(
    problem: Problem, copies: Copies, placement: Placement, say: Say, trial: Trial | None
) -> Mapping[str, str]:
    cuts = _cuts(problem, copies, placement)
    undivided = {*cuts[0].undivided(copies.original), *_try(problem, cuts[0].firsts, say, trial)}
    pipelines = _in_order(problem, copies, placement, cuts, undivided)
    ranks = np.unique(np.concatenate([each.of_stages for each in pipelines])).tolist()
    stages_on = [
        [number for each in pipelines for number in np.flatnonzero(each.of_stages == device).tolist()]
        for device in ranks
    ]
    names = ["schedule.csv"] if len(pipelines) == 1 else [f"schedule_{number}.csv" for number in range(len(pipelines))]
    plan = {
        "micro_batches": [*copies.shares],
        "devices": process_devices(TARGET, problem.cluster, ranks),
        "stages": stages_on,
        "replicas": [sorted({ranks.index(device) for device in each.of_stages.tolist()}) for each in pipelines],
        "schedules": names,
        "split_spec": dict.fromkeys(cuts[0].firsts, "BEGINNING"),
    }
    _say_exported(problem, copies, placement, pipelines, say)
    schedules = ("\n".join([*(",".join(map(_word, row)) for row in each.table), ""]) for each in pipelines)
    return {"plan.json": _text(plan), **dict(zip(names, schedules, strict=True)), "run.py": SCRIPT.read_text("utf-8")}


class _Pipeline(NamedTuple):
    """The pipeline of a replica: its stages, their devices, and a row of passes for each device, by its number."""

    cut: PipelineCut
    of_stages: Int64[np.ndarray, " stages"]
    table: Table


def _cuts(problem: Problem, copies: Copies, placement: Placement) -> list[PipelineCut]:
    """The stages of each replica. Raises UnsayableError where replicas share a device or are cut in other places."""
    if apart := [*copies.one_home, *(layers for layers, _ in copies.family_shares)]:
        raise UnsayableError(
            f"{TARGET}: each replica has the whole network, and {listed(apart)} has a home or shares of its own; plan "
            "with --planner dp-pp"
        )
    one, cuts, used = of_one_micro_batch(problem), list[PipelineCut](), set[int]()
    for replica in range(copies.replicas):
        cut = stages(one, _of_one(copies, placement, replica), several=True)
        if used & {stage.device for stage in cut.rows}:
            raise UnsayableError(f"{TARGET}: a process runs stages of one replica; plan with --planner dp-pp")
        used |= {stage.device for stage in cut.rows}
        cuts.append(cut)
        if not np.array_equal(cut.of_op, cuts[0].of_op):
            raise UnsayableError(
                f"{TARGET}: gradients of like stages are summed, and replicas are cut in different places; plan with "
                "--planner dp-pp"
            )
    return cuts


def _in_order(
    problem: Problem,
    copies: Copies,
    placement: Placement,
    cuts: Sequence[PipelineCut],
    undivided: Collection[int],
) -> list[_Pipeline]:
    """The pipeline of each replica in the planned order."""
    of_op = cuts[0].of_op[copies.source]
    (result,) = simulate(problem, [placement], timeline=True)
    if result.timeline is None:
        raise UnsayableError(f"{TARGET}: the placement has no step: {result.infeasible}")
    try:
        pipelines = list[_Pipeline]()
        for replica, cut in enumerate(cuts):
            devices = np.array([stage.device for stage in cut.rows])
            table = order_of(problem, result.timeline, of_op, devices, undivided, replica)
            pipelines.append(_Pipeline(cut, devices, table))
        return pipelines
    except ValueError as never:
        raise UnsayableError(f"{TARGET}: whole passes can't run in the planned order: {never}") from never


def _of_one(copies: Copies, placement: Placement, replica: int) -> Placement:
    """The placement of one micro-batch. Raises UnsayableError if a replica's micro-batches stand elsewhere."""
    original, ours = copies.original, ~copies.added & (copies.replica == replica)
    first = np.full(original.num_ops, NONE)
    first[copies.source[ours][::-1]] = placement.device[ours][::-1]
    apart = ours & (placement.device != first[copies.source])
    if apart.any():
        names = list(dict.fromkeys(original.layer[op] or original.op_names[op] for op in copies.source[apart].tolist()))
        raise UnsayableError(
            f"{TARGET}: a stage runs all micro-batches on its device, and of {listed(names)} some run elsewhere; place "
            "with --copies together --granularity module"
        )
    return Placement(first.astype(np.int32))


def _say_exported(
    problem: Problem, copies: Copies, planned: Placement, pipelines: Sequence[_Pipeline], say: Say
) -> None:
    if len(pipelines) > 1:
        say(f"{TARGET}: gradients of replicas are summed after the last pass, where the plan sends them during passes")
        return
    cut, of_stages, table = pipelines[0]
    exported = placed(problem, cut.of_op[copies.source], of_stages, table)
    before, after = (result.step_time_ns for result in simulate(problem, [planned, exported]))
    if before is not None and after is not None and abs(after / before - 1) > SAID:
        say(
            f"{TARGET}: as exported, with whole passes in turn, a step takes {after / 1e6:,.3f} ms, and as planned "
            f"{before / 1e6:,.3f} ms"
        )


def _try(problem: Problem, first: list[str], say: Say, trial: Trial | None) -> Sequence[int]:
    """The stages that PyTorch can't divide, as its tracer cuts the module.

    Raises UnsayableError if it doesn't cut it so, or if a stage can't take its inputs.
    """
    result: TrialResult = trial(TARGET, first) if trial else tried(problem.graph, TARGET, first)
    if result.fault:
        raise UnsayableError(
            f"{TARGET}: PyTorch doesn't run it so: {result.fault.what}; no granularity would do, {ONE_DEVICE}"
        )
    if result.untried:
        say(f"{TARGET}: not tried, only checked by the graph, {result.untried}")
    return result.undivided


def _word(action: Action) -> str:
    return f"{action.stage}{LETTERS[action.kind]}{action.micro_batch}"


def _text(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=1) + "\n"
