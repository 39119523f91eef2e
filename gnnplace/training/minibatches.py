"""The parts of an update's samples that a pass learns from, where an epoch is divided.

Samples that share a grouping stand side by side (`protocol.Choose`), so a part is of whole groupings, or of samples of one.
"""

from __future__ import annotations

from gnnplace.config.training import TrainingConfig


def minibatch(turn: int, parts: int, samples: int) -> slice:
    """The samples of pass `turn`, where an epoch is divided into so many parts, of equal sizes up to one sample."""
    part = turn % parts
    return slice(part * samples // parts, (part + 1) * samples // parts)


def check(parts: int, training: TrainingConfig, shared: bool) -> None:
    """Raises ValueError where there are more parts than samples, or, with `shared` groupings, where a part would cut one."""
    if parts > training.samples:
        raise ValueError(f"algorithm.minibatches: {parts} parts of {training.samples} samples")
    each = training.placements
    if shared and training.groupings > 1 and any(_cuts(minibatch(turn, parts, training.samples), each) for turn in range(parts)):
        raise ValueError(
            f"algorithm.minibatches: {parts} parts of {training.groupings} groupings with {each} placements each would cut a grouping; "
            f"choose a number that divides the groupings, or a multiple of them"
        )


def _cuts(part: slice, each: int) -> bool:
    """Whether a part has some samples of a grouping and those of another, too."""
    inside = part.start // each == (part.stop - 1) // each
    return not inside and bool(part.start % each or part.stop % each)
