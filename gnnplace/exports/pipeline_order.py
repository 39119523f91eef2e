"""The order of a placed step of several micro-batches, as a table of passes over stages: what pipeline runtimes run.

A runtime runs whole passes of a micro-batch over a stage, one after another. So the ops of a pass stand for it: it is
ordered by the first of them to start. Gradients of weights are a pass of their own where another pass starts between
them and those of the inputs, and one with these elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.pipelines.actions import Action, Kind, Table, checked
from gnnplace.baselines.pipelines.orders import passes
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline

KINDS: tuple[Kind, ...] = ("F", "B", "W")


def order_of(
    problem: Problem,
    timeline: Timeline,
    stage: Int64[np.ndarray, " ops"],
    devices: Int64[np.ndarray, " stages"],
    undivided: Collection[int] = (),
    replica: int = 0,
) -> Table:
    """The passes of each device that has a stage of a replica, by the numbers of devices.

    The backward passes of `undivided` stages are one. A replica counts its micro-batches from 0. Raises ValueError if
    passes wait for each other for ever in the order in which they start.

        >>> import gnnplace as gp
        >>> from gnnplace.simulator.simulator import simulate
        >>> problem = gp.problem("squeezenet", cluster="k40-2", micro_batches=2)
        >>> (result,) = simulate(problem, [gp.place(problem, "gpu")], timeline=True)
        >>> stages = np.zeros(problem.num_ops, dtype=np.int64)
        >>> print(*order_of(problem, result.timeline, stages, np.array([1]))[0])
        0F0 0F1 0B0 0B1 0W0 0W1
    """
    start = _starts(problem, timeline, stage, len(devices), replica)
    for each in undivided:
        start[2, each] = start[1, each]
    rows = []
    for device in np.unique(devices).tolist():
        rows.append([*_row(start, np.flatnonzero(devices == device))])
    return checked(rows)


def _starts(
    problem: Problem, timeline: Timeline, stage: Int64[np.ndarray, " ops"], stages: int, replica: int
) -> Int64[np.ndarray, "passes stages micro_batches"]:
    """When each pass starts. One without an op starts with the other pass of the backward pass, or of the stage."""
    copies, never = copies_of(problem.graph), np.iinfo(np.int64).max
    ours = (copies.micro_batch != NONE) & ~copies.added & (copies.replica == replica)
    ops = np.flatnonzero(ours & problem.graph.kernel)
    start = np.full((len(KINDS), stages, copies.shares[replica]), never)
    number = copies.micro_batch[ops] - sum(copies.shares[:replica])
    np.minimum.at(start, (passes(copies)[ops], stage[ops], number), timeline.start_ns[ops])
    forward, inputs, weights = start
    inputs[:] = np.where(inputs == never, weights, inputs)
    weights[:] = np.where(weights == never, inputs, np.maximum(weights, inputs))
    assert (start != never).all(), "a stage computes in both passes"
    return start


def _row(
    start: Int64[np.ndarray, "passes stages micro_batches"], stages: Int64[np.ndarray, " some"]
) -> Iterator[Action]:
    """The actions of a device's stages by their starts; forward passes come first where these are equal."""
    actions = [
        (int(start[number, stage, copy]), number, stage, copy)
        for number in range(len(KINDS))
        for stage in stages.tolist()
        for copy in range(start.shape[2])
    ]
    actions.sort()
    for place, (_, number, stage, copy) in enumerate(actions):
        at_once = start[1, stage, copy] == start[2, stage, copy]
        follows = [each[1:] for each in actions[max(0, place - 1) : place + 2]]
        joins = at_once or {(1, stage, copy), (2, stage, copy)} <= set(follows)
        if KINDS[number] == "F" or not joins:
            yield Action(KINDS[number], stage, copy)
        elif KINDS[number] == "B":
            yield Action("BW", stage, copy)
