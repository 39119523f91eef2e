"""Files for `torch.distributed.pipelining`: of one micro-batch where stages begin, of several also the planned order.

The order is the CSV that PyTorch's runtime and torchtitan load, a row for each process: 0F3 is the forward pass of
micro-batch 3 over stage 0, I and W are its gradients of inputs and of weights, B both. A script beside it trains the
stages in this order. If the module is at hand, PyTorch's own tracer cuts it before anything is written.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gnnplace.baselines.pipelines.actions import Action, Table
from gnnplace.baselines.pipelines.orders import placed
from gnnplace.baselines.pipelines.rows import of_one_micro_batch
from gnnplace.exports.data_parallel import data_parallel
from gnnplace.exports.homes import of_torch, process_devices
from gnnplace.exports.pipeline_order import order_of
from gnnplace.exports.refusal import ONE_DEVICE, TrialResult, UnsayableError, listed
from gnnplace.exports.stages import TARGET, PipelineCut, stages
from gnnplace.exports.trial import Say, Trial, tried
from gnnplace.graph import NONE, Copies
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

SCRIPT = Path(__file__).with_name("run_pipeline.py")
LETTERS = {"F": "F", "B": "I", "W": "W", "BW": "B"}  # PyTorch's, of the kinds of actions
SAID = 0.001  # of a step: what keeping whole passes in turn changes it by before that is said


def torch_pipelining(
    problem: Problem, placement: Placement, say: Say = warnings.warn, trial: Trial | None = None
) -> str | Mapping[str, str]:
    """JSON with the `devices` of the stages and the `split_spec`: the first module of each stage but the first.

    Of several micro-batches, a folder: `plan.json`, with the stages of each process, too; `schedule.csv`; `run.py`. Of
    replicas and shards the folder is that of `data_parallel`.
    Raises UnsayableError if PyTorch can't cut the module so (`stages`), and, of several micro-batches, for replicas,
    for an op whose copies stand on several devices, and for passes that wait for each other. `say` receives one line if
    the tracer could not be tried, and one if the step of whole passes in turn takes another time than the planned one.

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
    copied = data_parallel(TARGET, problem, placement, say)
    return copied or _pipeline(problem, problem.graph.copies, placement, say, trial)


def _pipeline(
    problem: Problem, copies: Copies, placement: Placement, say: Say, trial: Trial | None
) -> Mapping[str, str]:
    cut = stages(of_one_micro_batch(problem), _of_one(problem, copies, placement), several=True)
    of_stages = np.array([stage.device for stage in cut.rows])
    table = _table(problem, copies, placement, cut)
    _try(problem, cut.firsts, say, trial)
    ranks = list(dict.fromkeys(of_stages.tolist()))
    plan = {
        "micro_batches": copies.micro_batches,
        "devices": process_devices(TARGET, problem.cluster, ranks),
        "stages": [np.flatnonzero(of_stages == device).tolist() for device in ranks],
        "split_spec": dict.fromkeys(cut.firsts, "BEGINNING"),
    }
    _say_exported(problem, placement, placed(problem, cut.of_op[copies.source], of_stages, table), say)
    rows = [",".join(map(_word, row)) for row in table]
    return {"plan.json": _text(plan), "schedule.csv": "\n".join([*rows, ""]), "run.py": SCRIPT.read_text("utf-8")}


def _of_one(problem: Problem, copies: Copies, placement: Placement) -> Placement:
    """The placement of one micro-batch. Raises UnsayableError for replicas, and if micro-batches stand elsewhere."""
    if copies.replicas > 1:
        raise UnsayableError(
            f"{TARGET}: runs one replica, and this step has {copies.replicas}; place it with --replicas 1"
        )
    original, ours = copies.original, ~copies.added
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


def _table(problem: Problem, copies: Copies, placement: Placement, cut: PipelineCut) -> Table:
    (result,) = simulate(problem, [placement], timeline=True)
    if result.timeline is None:
        raise UnsayableError(f"{TARGET}: the placement has no step: {result.infeasible}")
    devices = np.array([stage.device for stage in cut.rows])
    try:
        undivided = cut.undivided(copies.original)
        return order_of(problem, result.timeline, cut.of_op[copies.source], devices, undivided)
    except ValueError as never:
        raise UnsayableError(f"{TARGET}: whole passes can't run in the planned order: {never}") from never


def _say_exported(problem: Problem, planned: Placement, exported: Placement, say: Say) -> None:
    before, after = (result.step_time_ns for result in simulate(problem, [planned, exported]))
    if before is not None and after is not None and abs(after / before - 1) > SAID:
        say(
            f"{TARGET}: as exported, with whole passes in turn, a step takes {after / 1e6:,.3f} ms, and as planned "
            f"{before / 1e6:,.3f} ms"
        )


def _try(problem: Problem, first: list[str], say: Say, trial: Trial | None) -> None:
    """Raises UnsayableError if PyTorch's tracer doesn't cut the module so, or if a stage can't take its inputs."""
    result: TrialResult = trial(TARGET, first) if trial else tried(problem.graph, TARGET, first)
    if result.fault:
        raise UnsayableError(
            f"{TARGET}: PyTorch doesn't run it so: {result.fault.what}; no granularity would do, {ONE_DEVICE}"
        )
    if result.untried:
        say(f"{TARGET}: not tried, only checked by the graph, {result.untried}")


def _word(action: Action) -> str:
    return f"{action.stage}{LETTERS[action.kind]}{action.micro_batch}"


def _text(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=1) + "\n"
