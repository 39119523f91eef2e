"""The colours of micro-batches in pictures of a step: a hue for each in their order, backward passes darker.

What runs once a step is grey. What is added to the step (sums, rings, fetches) has a colour of its own.
"""

from __future__ import annotations

from colorsys import hls_to_rgb
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64, Integer
from matplotlib.colors import to_hex

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.result import Timeline
from gnnplace.transformations.repetition import BACKWARD

GAPS = 500  # a pass may have gaps of this part of the step
MOST_HUES = 16  # neighbours share a hue where there are more micro-batches
HUES = 232, 205, 172, 120, 62, 36, 14, -12  # degrees: from blue over green and yellow to red
FORWARD, BOTH, BACK = (0.76, 0.65), (0.64, 0.55), (0.42, 0.6)  # lightness and saturation
ONCE, ADDED = ("once a step", "#a3a8b3"), ("sums, rings, fetches", "#8e24aa")
UNNUMBERED = ONCE[0], ADDED[0]


class Owners(NamedTuple):
    """Whom ops belong to: micro-batches in their order, neighbours together where they are many; `ONCE`; `ADDED`.

    `of[i]` is the owner of op i.
    """

    names: tuple[str, ...]
    colours: tuple[str, ...]
    of: Int64[np.ndarray, " ops"]


class DrawnCopies(NamedTuple):
    """Ops of one owner (a mask) in the same direction, and their colour."""

    owner: int
    name: str
    colour: str
    ops: Bool[np.ndarray, " ops"]


class Passes(NamedTuple):
    """Forward and backward passes of the micro-batch `number`: ops that follow one another on a row."""

    row: Integer[np.ndarray, " passes"]
    start_ns: Int64[np.ndarray, " passes"]
    end_ns: Int64[np.ndarray, " passes"]
    number: Integer[np.ndarray, " passes"]
    backward: Bool[np.ndarray, " passes"]


def owners(graph: ComputationGraph) -> Owners:
    """The owners of the ops of a step of several micro-batches. The state of a variable runs once, as it does.

    >>> from gnnplace.corpus import manifest
    >>> from gnnplace.transformations.micro_batches import micro_batches
    >>> owners(micro_batches(manifest.graph("dlrm"), 40)).names[:3]
    ('0–2', '3–4', '5–7')
    """
    assert graph.copies is not None
    copies, number = graph.copies, graph.copies.micro_batches
    hues = min(number, MOST_HUES)
    hue = np.arange(number) * hues // number
    added = copies.added & ~graph.canonical_kind.among(["variable"])
    of = np.append(hue, hues)[copies.micro_batch]  # the last for `NONE`
    ends = [np.flatnonzero(hue == each)[[0, -1]].tolist() for each in range(hues)]
    names = [str(first) if first == last else f"{first}–{last}" for first, last in ends]
    colours = [_colour(each, hues, BOTH) for each in range(hues)]
    return Owners((*names, ONCE[0], ADDED[0]), (*colours, ONCE[1], ADDED[1]), np.where(added, hues + 1, of))


def coloured_copies(graph: ComputationGraph) -> list[DrawnCopies]:
    """The owners that have ops, in the order to draw them: micro-batches last, over what takes little time."""
    names, colours, of = owners(graph)
    backward, hues, drawn = graph.phase.among(BACKWARD), len(names) - 2, []
    for owner in (hues, hues + 1, *range(hues)):
        name, ops = names[owner], of == owner
        if owner < hues:
            drawn.append(DrawnCopies(owner, name, _colour(owner, hues, FORWARD), ops & ~backward))
            drawn.append(DrawnCopies(owner, name, _colour(owner, hues, BACK), ops & backward))
        else:
            drawn.append(DrawnCopies(owner, name, colours[owner], ops))
    return [each for each in drawn if each.ops.any()]


def passes(graph: ComputationGraph, row: Integer[np.ndarray, " ops"], timeline: Timeline) -> Passes:
    """The passes of a step, by row and start. What is added, runs once or takes no time interrupts none."""
    assert graph.copies is not None
    copies, backward = graph.copies, graph.phase.among(BACKWARD)
    works = (copies.micro_batch != NONE) & ~copies.added & (timeline.end_ns > timeline.start_ns)
    ops = np.flatnonzero(works)
    ops = ops[np.lexsort((timeline.start_ns[ops], row[ops]))]
    start_ns, end_ns = timeline.start_ns[ops], timeline.end_ns[ops]
    same = np.stack([row[ops], copies.micro_batch[ops], backward[ops]])
    apart = (same[:, 1:] != same[:, :-1]).any(axis=0)
    apart |= start_ns[1:] - end_ns[:-1] > timeline.end_ns.max() // GAPS
    first = np.flatnonzero(np.append(len(ops) > 0, apart))
    last = np.append(first[1:], len(ops))[: len(first)] - 1
    place, number, dark = same[:, first]
    return Passes(place, start_ns[first], end_ns[last], number, dark.astype(bool))


def _colour(hue: int, hues: int, tone: tuple[float, float]) -> str:
    degrees = np.interp(hue / max(1, hues - 1), np.linspace(0, 1, len(HUES)), HUES)
    return to_hex(hls_to_rgb(degrees % 360 / 360, *tone))
