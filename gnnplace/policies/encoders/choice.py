"""The choice of an encoder that policies share: that of the policy's own paper, or the GNN that all of them can take (`UnitGraph`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from gnnplace.policies.encoders.columns import CostColumns
from gnnplace.policies.encoders.gnn import UnitGraph
from gnnplace.policies.encoders.protocol import OpEncoder

EncoderName = Literal["paper", "gnn"]
ENCODERS: Mapping[str, Mapping[str, str]] = {"paper": {"encoder": "paper"}, "gnn": {"encoder": "gnn"}}
"""What `PolicyConfig.encoders` is for a policy whose knob `encoder` is the choice."""


def encoder_of(name: EncoderName, paper: Callable[[], OpEncoder], *, width: int, rounds: int, kept_apart: bool = True) -> OpEncoder:
    """The encoder of this name: what `paper` makes, or message passing over the costs of units, as in the hierarchical policy."""
    return paper() if name == "paper" else UnitGraph(CostColumns(), width=width, rounds=rounds, kept_apart=kept_apart)
