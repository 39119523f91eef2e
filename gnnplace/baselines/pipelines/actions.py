"""Pipeline schedules as tables: for each device, the order of its passes over stages and micro-batches.

A device runs its actions strictly in this order and waits for an action's inputs (`schedules` of the papers, and of
`torch.distributed.pipelining`). Stages are numbered along the network; a device may have several (its chunks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

Kind = Literal["F", "B", "W", "BW"]


class Action(NamedTuple):
    """A pass of one micro-batch over one stage.

    Kinds are the forward pass (F), the gradients of inputs (B), those of weights (W), or both gradients (BW).
    """

    kind: Kind
    stage: int
    micro_batch: int

    @property
    def passes(self) -> tuple[tuple[str, int, int], ...]:
        """Its passes F, B and W, each with its stage and micro-batch."""
        return tuple((kind, self.stage, self.micro_batch) for kind in self.kind)

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"


Table = tuple[tuple[Action, ...], ...]  # of each device
Rule = Callable[[int, int], Table]  # of so many devices and micro-batches
Reads = Sequence[Collection[int]]  # of each stage, the stages that its forward pass reads from


class Pipeline(NamedTuple):
    """A schedule on a machine: the device of every stage, and the table, whose rows are of these devices."""

    devices: Int64[np.ndarray, " stages"]
    table: Table


def checked(table: Sequence[Sequence[Action]], reads: Reads | None = None) -> Table:
    """The table, if each pass of each stage and micro-batch occurs once and no device waits forever.

    Without `reads` each stage reads from the one before. Raises ValueError otherwise, with the first bad action.

        >>> checked([[Action("F", 0, 0), Action("BW", 0, 0)]])[0][1].kind
        'BW'
        >>> checked([[Action("BW", 0, 0), Action("F", 0, 0)]])
        Traceback (most recent call last):
        ValueError: actions: device 0 waits forever for the inputs of 0BW0
    """
    _require_all(table)
    whole = tuple(tuple(row) for row in table)
    starts(whole, reads)
    return whole


def starts(table: Table, reads: Reads | None = None) -> dict[tuple[str, int, int], int]:
    """The start of each pass (F, B or W, stage, micro-batch) in a step whose passes all take one unit of time.

    B and W of one action start together. Raises ValueError if a device waits forever.
    """
    start: dict[tuple[str, int, int], int] = {}
    end: dict[tuple[str, int, int], int] = {}
    stages = 1 + max(action.stage for row in table for action in row)
    before = [[stage - 1][: min(stage, 1)] for stage in range(stages)] if reads is None else reads
    behind = [[reader for reader in range(stages) if stage in before[reader]] for stage in range(stages)]
    turn, free = [0] * len(table), [0] * len(table)
    while ready := [device for device, row in enumerate(table) if turn[device] < len(row)]:
        ended = len(end)
        for device in ready:
            for action in table[device][turn[device] :]:
                inputs = _inputs(action, before, behind)
                if not inputs <= end.keys():
                    break
                begin = max([free[device], *(end[each] for each in inputs)])
                free[device] = begin + len(action.passes)
                start.update(dict.fromkeys(action.passes, begin))
                end.update(dict.fromkeys(action.passes, free[device]))
                turn[device] += 1
        if len(end) == ended:
            action = table[ready[0]][turn[ready[0]]]
            raise ValueError(f"actions: device {ready[0]} waits forever for the inputs of {action}")
    return start


def alive(table: Table) -> list[int]:
    """The most micro-batches that each stage holds the activations of, from F to W.

    >>> alive(((Action("F", 0, 0), Action("F", 0, 1), Action("BW", 0, 0), Action("BW", 0, 1)),))
    [2]
    """
    most = Counter[int]()
    for row in table:
        held = Counter[int]()
        for action in row:
            held[action.stage] += (action.kind == "F") - ("W" in action.kind)
            most[action.stage] = max(most[action.stage], held[action.stage])
    return [most[stage] for stage in range(len(most))]


def devices_of_stages(table: Table) -> list[int]:
    """The device of each stage, the row that its actions are in."""
    of_stage = {action.stage: device for device, row in enumerate(table) for action in row}
    return [of_stage[stage] for stage in range(len(of_stage))]


def _inputs(action: Action, before: Reads, behind: Reads) -> set[tuple[str, int, int]]:
    """The passes whose results an action reads, by the stages before and behind each stage."""
    kind, stage, micro_batch = action
    if kind == "F":
        return {("F", other, micro_batch) for other in before[stage]}
    if kind == "W":
        return {("B", stage, micro_batch)}
    return {("F", stage, micro_batch), *(("B", other, micro_batch) for other in behind[stage])}


def _require_all(table: Sequence[Sequence[Action]]) -> None:
    """Raises ValueError where a pass is missing or repeated, and where a stage is on two devices."""
    counts = Counter(each for row in table for action in row for each in action.passes)
    stages, micro_batches = {stage for _, stage, _ in counts}, {copy for _, _, copy in counts}
    for kind in "FBW":
        for stage in stages:
            for micro_batch in micro_batches:
                if (count := counts[kind, stage, micro_batch]) != 1:
                    raise ValueError(f"actions: {stage}{kind}{micro_batch} occurs {count} times, not once")
    rows = [{action.stage for action in row} for row in table]
    if shared := [stage for stage in stages if sum(stage in row for row in rows) > 1]:
        raise ValueError(f"actions: stage {shared[0]} is on several devices")
