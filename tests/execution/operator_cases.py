"""Networks of PyTorch's test databases, and of views and writes drawn at random, that are placed: each computes what plain PyTorch does."""

from __future__ import annotations

from collections.abc import Iterator

from faults.case import Case

from experiments.placed_operators import run
from experiments.placed_operators.nets import Net


def cases() -> Iterator[Case]:
    """A case a network."""
    for net in run.nets():
        yield Case(f"placed {net.kind}", net.name, lambda _, net=net: broken(net, run.PLACEMENTS))


def broken(net: Net, placements: int) -> str | None:
    """What a placed network computes otherwise, in a line."""
    wrong = [f"{mode}: {why}" for mode, (said, why) in run.tried(net, placements).items() if said == "wrong"]
    return "; ".join(wrong) or None
