"""Sets of moves: drawn moves with their features, subsets, unions, and the same moves from another placement."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float32, Int64

from gnnplace.compiled import kernel
from gnnplace.moves.drawing import Drawn, draw, guide, hash_of, hash_of_unit
from gnnplace.moves.features import WorkingMemory, features, work
from gnnplace.moves.neighbourhood import Devices, Neighbourhood
from gnnplace.moves.situation import Situation


class Pool(NamedTuple):
    """Moves that are not evaluated yet, with their features, from the placement at hand."""

    moves: Drawn
    rows: Float32[np.ndarray, "moves features"]


def fresh(
    around: Neighbourhood,
    here: Devices,
    situation: Situation,
    generator: np.random.Generator,
    count: int,
    met: set[int] | None = None,
    scratch: WorkingMemory | None = None,
) -> Pool:
    """At most `count` random moves from a placement.

    No two lead to the same placement, and none to a placement with a hash in `met` or back to `here`.
    """
    by_wait = guide(around, here, situation.peak_bytes.astype(np.int64), situation.waited_ns)
    moves, word = draw(around, here, by_wait, generator, count), int(hash_of(here))
    there = [word ^ change for change in moves.change.tolist()]
    moves = some(moves, np.flatnonzero(unknown(there, (met or set()) | {word})))
    return Pool(moves, features(around.terrain, situation, moves, scratch or work(around.terrain)))


def some(moves: Drawn, which: Int64[np.ndarray, " some"]) -> Drawn:
    """The moves of these numbers, in this order."""
    size = np.diff(moves.ptr)[which]
    ptr = np.concatenate([[0], np.cumsum(size)])
    at = np.repeat(moves.ptr[which] - ptr[:-1], size) + np.arange(ptr[-1])
    return Drawn(ptr, moves.unit[at], moves.device[at], *(column[which] for column in moves[3:]))


def together(first: Drawn, second: Drawn) -> Drawn:
    """The moves of both, the first ones first."""
    ptr = np.concatenate([first.ptr, first.ptr[-1] + second.ptr[1:]])
    return Drawn(ptr, *(np.concatenate(columns) for columns in zip(first[1:], second[1:], strict=True)))


def from_there(moves: Drawn, device: Devices) -> Drawn:
    """The same moves from another placement: each puts its units on the same devices as before.

    Moves that change nothing from the new placement are dropped.
    """
    ptr, unit, target, change = _from_there(moves.ptr, moves.unit, moves.device, device)
    shifted = Drawn(ptr, unit, target, moves.kind, moves.guided, moves.blocks, change)
    return some(shifted, np.flatnonzero(np.diff(ptr)))


@kernel
@no_type_check
def _from_there(ptr, unit, target, device):
    new_ptr, change = np.zeros(len(ptr), np.int64), np.zeros(len(ptr) - 1, np.uint64)
    kept = np.zeros(len(unit), np.bool_)
    for move in range(len(change)):
        new_ptr[move + 1] = new_ptr[move]
        for at in range(ptr[move], ptr[move + 1]):
            if target[at] != device[unit[at]]:
                kept[at] = True
                new_ptr[move + 1] += 1
                change[move] ^= hash_of_unit(unit[at], device[unit[at]]) ^ hash_of_unit(unit[at], target[at])
    return new_ptr, unit[kept], target[kept], change


def distinct(
    moves: Drawn, order: Int64[np.ndarray, " moves"], count: int, alike: float
) -> Int64[np.ndarray, " chosen"]:
    """The first `count` moves in an order that share at most `alike` of their changes with any chosen before.

    If there are fewer, the first of the other moves follow. Every move must change something.
    """
    chosen, devices = list[int](), 1 + int(moves.device.max(initial=0))
    sets = list[Int64[np.ndarray, " changes"]]()
    for move in order.tolist():
        if len(chosen) == count:
            break
        span = slice(moves.ptr[move], moves.ptr[move + 1])
        changes = moves.unit[span] * devices + moves.device[span]
        if all(_shared(changes, other) <= alike for other in sets):
            chosen.append(move)
            sets.append(changes)
    others = [move for move in order.tolist() if move not in chosen]
    return np.array([*chosen, *others[: count - len(chosen)]], dtype=np.int64)


def _shared(first: Int64[np.ndarray, " first"], second: Int64[np.ndarray, " second"]) -> float:
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / (len(first) + len(second) - both)


def unknown(words: list[int], seen: set[int]) -> Bool[np.ndarray, " moves"]:
    """True for each hash that is not in `seen` and has not come earlier in `words`."""
    met, new = set(seen), np.zeros(len(words), dtype=bool)
    for number, word in enumerate(words):
        new[number] = word not in met
        met.add(word)
    return new
