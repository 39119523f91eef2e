"""The fixed split of the corpus into training, validation and test graphs. It never divides a lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, runtime_checkable

Split = Literal["train", "validation", "test"]

FIXED: Mapping[str, Split] = {
    "recurrent": "train", "convolutional": "train", "transformer": "train",
    "diffusion": "validation", "wavenet": "validation", "mixer": "validation", "autoencoder": "validation",
    "point-cloud": "validation",
    "state-space": "validation",
    "cell": "test", "recommender": "test", "graph": "test",
}  # fmt: skip


@runtime_checkable
class SplitMember(Protocol):
    """The properties of a graph that a split depends on."""

    @property
    def name(self) -> str: ...
    @property
    def lineage(self) -> str: ...
    @property
    def split(self) -> Split: ...


def fixed(lineage: str) -> Split:
    """The part of the fixed split that holds a lineage. Raises ValueError for an unknown lineage."""
    if lineage not in FIXED:
        raise ValueError(f"lineage: {lineage!r} is in no part of the fixed split; known lineages: {', '.join(FIXED)}")
    return FIXED[lineage]


def check(members: Iterable[SplitMember]) -> None:
    """Raises ValueError if graphs of one lineage are in different parts of the split."""
    first: dict[str, SplitMember] = {}
    for member in members:
        other = first.setdefault(member.lineage, member)
        if other.split != member.split:
            sibling = f"{other.name!r} of the same lineage {member.lineage!r} is in {other.split!r}"
            raise ValueError(f"{member.name!r}: split is {member.split!r}, but {sibling}")
