"""The one choice of an encoder, `--encoder`: that of the policy's own
paper, or the GNN that all of them can take (`UnitGraph`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from gnnplace.policies.encoders.columns import CostColumns
from gnnplace.policies.encoders.gnn import UnitGraph
from gnnplace.policies.encoders.protocol import OpEncoder

EncoderName = Literal["paper", "gnn"]
ENCODERS: Mapping[str, Mapping[str, str]] = {"paper": {"encoder": "paper"}, "gnn": {"encoder": "gnn"}}
"""What `PolicyConfig.encoders` is for a policy whose knob `encoder` is the choice."""


def by_switches(neighbours: str) -> dict[str, dict[str, str]]:
    """The same for one with two switches: what ops are embedded from, and how
    neighbours enter, which is `neighbours` in its paper.
    """
    return {
        "paper": {"features": "paper", "neighbours": neighbours},
        "gnn": {"features": "costs", "neighbours": "messages"},
    }


def encoder_of(
    name: EncoderName, paper: Callable[[], OpEncoder], *, width: int, rounds: int, kept_apart: bool = True
) -> OpEncoder:
    """The encoder of this name: what `paper` makes, or message passing
    over the costs of units, as in the hierarchical policy.
    """
    return paper() if name == "paper" else UnitGraph(CostColumns(), width=width, rounds=rounds, kept_apart=kept_apart)
