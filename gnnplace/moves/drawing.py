"""Random moves of a placement.

A move sends a block to a device, mostly that of a neighbour, or exchanges the devices of two blocks. Half of the blocks
contain a unit that a guide draws: with a probability in proportion to the time that the step waits for it or, if a
memory overflows, to its bytes on an overflowing device. The other blocks are drawn by their work. A unit keeps its
device if the target device is not allowed for it.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int8, Int32, Int64, UInt64

from gnnplace.compiled import kernel, part
from gnnplace.graph import NONE
from gnnplace.moves.neighbourhood import Devices, Neighbourhood
from gnnplace.units.blocks import GRAINS

WALK = len(GRAINS)  # the kind of a walk, after the kinds of all grains

Guide = Float[np.ndarray, " guided"]  # cumulative probabilities of units; empty: none
NO_GUIDE: Guide = np.zeros(0)


class Chances(NamedTuple):
    """The probabilities of the kinds of moves and blocks."""

    guided: float = 0.5  # the share of blocks that are drawn by the guide
    exchanges: float = 0.5  # the share of moves that exchange two blocks
    beside: float = 0.75  # the share of the other moves that go to a neighbour's device
    walks: float = 0.3  # the share of blocks that are walks
    keep_on: float = 0.8  # the probability that a walk goes on


CHANCES = Chances()


class Drawn(NamedTuple):
    """Moves: move m puts unit `unit[k]` on `device[k]` for k in `ptr[m]:ptr[m+1]`; this range may be empty.

    `kind` has the kinds of its two blocks (-1: no second block), and `guided` says whether the guide drew one of them.
    The hash of the placement after the move is the hash before it xor `change` (`hash_of`).
    """

    ptr: Int64[np.ndarray, " moves_plus_1"]
    unit: Int64[np.ndarray, " changes"]
    device: Int32[np.ndarray, " changes"]
    kind: Int8[np.ndarray, "moves 2"]
    guided: Int8[np.ndarray, " moves"]
    blocks: Int8[np.ndarray, " moves"]  # the number of blocks
    change: UInt64[np.ndarray, " moves"]

    def after(self, move: int, device: Devices) -> Devices:
        """The placement after a move; `device` is the placement for which it was drawn."""
        changes, there = slice(self.ptr[move], self.ptr[move + 1]), device.copy()
        there[self.unit[changes]] = self.device[changes]
        return there


def guide(
    around: Neighbourhood,
    device: Devices,
    peak_bytes: Int64[np.ndarray, " devices"] | None,
    waited_ns: Int64[np.ndarray, " ops"] | Float[np.ndarray, " ops"] | None,
) -> Guide:
    """A guide by the time that the step waits for units or, if a memory overflows, by the bytes of units on its device.

    `peak_bytes` is the peak memory of each device, and `waited_ns` the time of each op on the critical chain; None if
    it is unknown.
    """
    if peak_bytes is not None and (over := peak_bytes > around.terrain.memory_bytes).any():
        weight = np.where(over[device], around.bytes, 0)
    elif waited_ns is not None:
        weight = np.bincount(around.closure.unit, weights=waited_ns, minlength=len(device))
    else:
        return NO_GUIDE
    return np.cumsum(weight / weight.sum()) if weight.any() else NO_GUIDE


def draw(
    around: Neighbourhood,
    device: Devices,
    guide: Guide,
    generator: np.random.Generator,
    count: int,
    chances: Chances = CHANCES,
) -> Drawn:
    """`count` random moves from the placement `device`."""
    return Drawn(*_draw(around.blocks, device, guide, generator, count, chances))


@kernel
@no_type_check
def _draw(blocks, device, guide, generator, count, chances):
    """One compiled loop: each move draws from what the one before has written."""
    num_devices, there, touched = blocks.legal.shape[1], device.copy(), np.empty(2 * len(device), np.int64)
    room = 64 * count
    ptr, unit, target = np.zeros(count + 1, np.int64), np.empty(room, np.int64), np.empty(room, np.int32)
    kind, change = np.full((count, 2), NONE, np.int8), np.zeros(count, np.uint64)
    guided, number = np.zeros(count, np.int8), np.ones(count, np.int8)
    filled = 0
    for move in range(count):
        size, by_guide, kind[move, 0] = _block(blocks, guide, generator, touched, 0, chances)
        end = size
        if generator.random() < chances.exchanges:
            end, also, kind[move, 1] = _block(blocks, guide, generator, touched, size, chances)
            by_guide, number[move] = by_guide or also, 2
            first, second = (
                _mostly_on(device, touched[:size], num_devices),
                _mostly_on(device, touched[size:end], num_devices),
            )
            _send(blocks, there, device, touched[:size], second)
            _send(blocks, there, device, touched[size:end], first)
        else:
            _send(
                blocks,
                there,
                device,
                touched[:size],
                _target(blocks, device, touched[:size], generator, chances.beside),
            )
        guided[move] = by_guide
        if filled + end > room:
            room = 2 * (filled + end)
            more_units, more_targets = np.empty(room, np.int64), np.empty(room, np.int32)
            more_units[:filled], more_targets[:filled] = unit[:filled], target[:filled]
            unit, target = more_units, more_targets
        for at in range(end):
            moving = touched[at]
            if there[moving] != device[moving]:
                unit[filled], target[filled] = moving, there[moving]
                change[move] ^= hash_of_unit(moving, device[moving]) ^ hash_of_unit(moving, there[moving])
                there[moving] = device[moving]
                filled += 1
        ptr[move + 1] = filled
    return ptr, unit[:filled], target[:filled], kind, guided, number, change


@kernel
@no_type_check
def hash_of(device):
    """The Zobrist hash of a placement (Zobrist, 1970): the xor of a random word for each unit on its device."""
    word = np.uint64(0)
    for unit in range(len(device)):
        word ^= hash_of_unit(unit, device[unit])
    return word


@part
@no_type_check
def hash_of_unit(unit, device):
    word = np.uint64(unit) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(device + 1) * np.uint64(0xD1B54A32D192ED03)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@part
@no_type_check
def _block(blocks, guide, generator, touched, at, chances):
    """Writes a random block to `touched` from `at` on. Returns its end, whether the guide drew it, and its kind."""
    grain = generator.integers(0, len(blocks.kind))
    by_guide = len(guide) > 0 and generator.random() < chances.guided
    first, last = blocks.first[grain], blocks.first[grain + 1]
    if by_guide:
        unit = min(np.searchsorted(guide, generator.random(), side="right"), len(guide) - 1)
        block = blocks.block_of[grain, unit]
    else:
        block = min(first + np.searchsorted(blocks.cumulated[first:last], generator.random(), side="right"), last - 1)
        unit = blocks.member[blocks.ptr[block]]
    if generator.random() < chances.walks:
        return _walk(blocks, unit, generator, touched, at, chances.keep_on), by_guide, WALK
    if block == NONE:
        touched[at] = unit
        return at + 1, by_guide, blocks.kind[grain]
    size = blocks.ptr[block + 1] - blocks.ptr[block]
    for place in range(size):
        touched[at + place] = blocks.member[blocks.ptr[block] + place]
    return at + size, by_guide, blocks.kind[grain]


@part
@no_type_check
def _walk(blocks, unit, generator, touched, at, keep_on):
    """Writes the units of a random walk from a unit to `touched`; returns their end. Each unit counts once."""
    end = at + 1
    touched[at] = unit
    while blocks.near_ptr[unit] < blocks.near_ptr[unit + 1] and generator.random() < keep_on:
        unit = blocks.near[generator.integers(blocks.near_ptr[unit], blocks.near_ptr[unit + 1])]
        visited = False
        for before in range(at, end):
            visited |= touched[before] == unit
        if not visited:
            touched[end] = unit
            end += 1
    return end


@kernel
@no_type_check
def _target(blocks, device, block, generator, beside):
    """Mostly the device of a neighbour of one of the units, if it is not that unit's device; else any device."""
    if generator.random() < beside:
        unit = block[generator.integers(0, len(block))]
        elsewhere = 0
        for at in range(blocks.near_ptr[unit], blocks.near_ptr[unit + 1]):
            elsewhere += device[blocks.near[at]] != device[unit]
        if elsewhere > 0:
            chosen = generator.integers(0, elsewhere)
            for at in range(blocks.near_ptr[unit], blocks.near_ptr[unit + 1]):
                there = device[blocks.near[at]]
                if there != device[unit]:
                    if chosen == 0:
                        return there
                    chosen -= 1
    return np.int32(generator.integers(0, blocks.legal.shape[1]))


@part
@no_type_check
def _mostly_on(device, block, num_devices):
    """The device of most units of a block, the first on a tie."""
    count = np.zeros(num_devices, np.int64)
    for unit in block:
        count[device[unit]] += 1
    return np.int32(count.argmax())


@part
@no_type_check
def _send(blocks, there, device, block, target):
    for unit in block:
        there[unit] = target if blocks.legal[unit, target] else device[unit]
