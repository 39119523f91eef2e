"""V-Half (Qi et al., NeurIPS 2024, arXiv 2405.15362, section 3): two chunks a device, half of 1F1B's memory.

A schedule repeats a *building block*, the passes of one micro-batch, every 6 units of time, where F, B and W of a chunk
take a unit each. The time from F to W of a chunk, its lifespan, is the memory that it takes. The block goes along the V
(stages d and 2p - 1 - d are on device d) with offsets of 2 from device to device for the forward pass of the first
chunk and the backward pass of the second, and of 1 for the others, so that lifespans on all devices sum to about 6p. W
fill the free units.

In warm-up and cool-down, where the block leaves units free, passes are *reordered*: each goes to the first free unit
after its inputs at which its device holds no more than the most that a device held before. Warm-up ends with the first
B of the first stage, cool-down begins with its last F. Then the schedule is *squeezed*: a device leaves no gap that its
inputs don't make. W are taken out, the passes of the cool-down move up once more, W fill what is free, and a step that
runs in this order is squeezed again. No device holds more than the activations of (p + 2) // 2 micro-batches. A step
idles for about (p / 2)(F + B + W), the paper says. With the authors' program, and here, it idles from p = 3 on for
3p - 4 passes over a chunk where p is odd, and for 3p - 7 where it is even.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from gnnplace.baselines.pipelines.actions import Action, Table, checked, starts

INTERVAL = 6  # the units of a building block
Row = dict[Action, int]  # of each pass of a device its unit


@cache
def v_half(devices: int, micro_batches: int) -> Table:
    """The actions of each device.

    >>> print(*v_half(1, 1)[0])
    0F0 1F0 1B0 0B0 1W0 0W0
    """
    rows = [_filled(_repeated(_block(devices, device), micro_batches)) for device in range(devices)]
    most = max(_peak(row) for row in rows)
    warm, cool = rows[0][Action("B", 0, 0)], rows[0][Action("F", 0, micro_batches - 1)]
    _reorder(rows, most, lambda unit: unit <= warm or unit >= cool)
    squeezed = starts(tuple(tuple(sorted(row, key=row.__getitem__)) for row in rows))
    rows = [{action: squeezed[action] for action in row if action.kind != "W"} for row in rows]
    cool = rows[0][Action("F", 0, micro_batches - 1)]
    _reorder(rows, most, lambda unit: unit >= cool)
    return checked([sorted(row, key=row.__getitem__) for row in map(_filled, rows)])


def _block(devices: int, device: int) -> Row:
    """The passes F and B of the first micro-batch on a device."""
    down, up = device, 2 * devices - 1 - device
    apart = 0 if devices % 2 else 3  # or passes of different micro-batches would meet
    return {
        Action("F", down, 0): 2 * device,
        Action("F", up, 0): 3 * devices - device - 2,
        Action("B", up, 0): 3 * devices + apart + 2 * device - 1,
        Action("B", down, 0): 6 * devices + apart - device - 2,
    }


def _repeated(block: Row, micro_batches: int) -> Row:
    return {
        action._replace(micro_batch=copy): unit + INTERVAL * copy
        for action, unit in block.items()
        for copy in range(micro_batches)
    }


def _filled(row: Row) -> Row:
    """The row with W, if it has none: a unit that is free goes to the W that waits longest."""
    if any(action.kind == "W" for action in row):
        return row
    action_at, filled, waiting, unit = {unit: action for action, unit in row.items()}, dict(row), list[Action](), 0
    while waiting or unit <= max(action_at):
        if (action := action_at.get(unit)) is not None:
            waiting += [action._replace(kind="W")] if action.kind == "B" else []
        elif waiting:
            filled[waiting.pop(0)] = unit
        unit += 1
    return filled


def _peak(row: Row) -> int:
    """The most chunks whose activations a device holds at once."""
    held = most = 0
    for action in sorted(row, key=row.__getitem__):
        held += {"F": 1, "B": 0, "W": -1}[action.kind]
        most = max(most, held)
    return most


def _reorder(rows: list[Row], most: int, moves: Callable[[int], bool]) -> None:
    """Moves passes whose unit says so to their first free units, one after another, such that no row's peak grows."""
    unit = {action: (at, device) for device, row in enumerate(rows) for action, at in row.items()}
    last = 2 * len(rows) - 1
    for action, (now, device) in sorted(unit.items(), key=lambda item: item[1]):
        if moves(now):
            row = rows[device]
            ends = [rows[unit[other][1]][other] for other in _awaited(action, last) if other in unit]
            for free in sorted({*range(max(ends, default=-1) + 1, now)} - {*row.values()}):
                row[action] = free
                if _peak(_filled(row)) <= most:
                    break
                row[action] = now


def _awaited(action: Action, last: int) -> list[Action]:
    """What a pass comes after: its inputs, and that pass of the micro-batch before."""
    kind, stage, copy = action
    before = [action._replace(micro_batch=copy - 1)]
    if kind == "F":
        return [*before, action._replace(stage=stage - 1)]
    if kind == "W":
        return [*before, action._replace(kind="B")]
    return [*before, action._replace(stage=stage + 1) if stage < last else action._replace(kind="F")]
