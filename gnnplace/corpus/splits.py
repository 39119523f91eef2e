"""Splits of the corpus, by lineage: what is learned on some networks is proved on others that are no siblings of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, Protocol, runtime_checkable

Split = Literal["train", "validation", "test"]

FIXED: Mapping[str, Split] = {
    "recurrent": "train", "convolutional": "train", "transformer": "train",
    "diffusion": "validation", "wavenet": "validation", "mixer": "validation", "autoencoder": "validation", "point-cloud": "validation",
    "state-space": "validation",
    "cell": "test", "recommender": "test", "graph": "test",
}  # fmt: skip


@runtime_checkable
class Member(Protocol):
    """What a split asks of a graph."""

    @property
    def name(self) -> str: ...
    @property
    def lineage(self) -> str: ...
    @property
    def split(self) -> Split: ...


class Fold(NamedTuple):
    """Names of graphs: those that are learned on, and those of the one lineage that is held out."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]


def fixed(lineage: str) -> Split:
    """The part of the fixed split to which a lineage of the corpus belongs. Raises ValueError for an unknown one."""
    if lineage not in FIXED:
        raise ValueError(f"lineage: {lineage!r} has no part of the fixed split; those that have one are {', '.join(FIXED)}")
    return FIXED[lineage]


def leave_one_lineage_out(members: Iterable[Member]) -> dict[str, Fold]:
    """A fold for each lineage, in alphabetical order."""
    found = sorted(members, key=lambda member: member.name)
    return {
        lineage: Fold(
            tuple(member.name for member in found if member.lineage != lineage),
            tuple(member.name for member in found if member.lineage == lineage),
        )
        for lineage in sorted({member.lineage for member in found})
    }


def check(members: Iterable[Member]) -> None:
    """Raises ValueError where graphs of one lineage are in several parts of the split."""
    first: dict[str, Member] = {}
    for member in members:
        other = first.setdefault(member.lineage, member)
        if other.split != member.split:
            sibling = f"that of {other.name!r}, which is of the same lineage {member.lineage!r}"
            raise ValueError(f"{member.name!r}: split {member.split!r} is not {other.split!r}, {sibling}")
