"""The protocols of encoders, and the choice `--encoder`: that of the policy's paper, or the GNN (`UnitGraph`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from gnnplace.policies.encoders.columns import CostColumns
from gnnplace.policies.encoders.gnn import UnitGraph
from gnnplace.problems import Problem
from gnnplace.units.units import Units


@runtime_checkable
class OpEncoder(Protocol):
    """Embeds units: `constants` once for a problem, then embeddings under the present weights.

    `widen_ranges` gets the constants of all training problems before the encoder learns.
    """

    width: int

    def constants(self, problem: Problem, units: Units) -> Any: ...

    def widen_ranges(self, constants: Sequence[Any]) -> None: ...

    def __call__(self, constants: Any) -> Float[Tensor, "units width"]: ...


@runtime_checkable
class ShowsOwn(OpEncoder, Protocol):
    """An op encoder that also shows each unit's columns without its neighbours: the input of a critic."""

    own_width: int

    def own(self, constants: Any) -> Float[Tensor, "units own_width"]: ...


@runtime_checkable
class GroupEncoder(Protocol):
    """Embeds the groups of each grouping, from constants of the problem and, if it reads them, its members' embeddings.

    An empty group is all zeros. `widen_ranges` is as with ops.
    """

    width: int

    def constants(self, problem: Problem, units: Units) -> Any: ...

    def widen_ranges(self, constants: Sequence[Any]) -> None: ...

    def __call__(
        self, constants: Any, grouping: Int[Tensor, "leading units"], members: Float[Tensor, "units ops_width"] | None
    ) -> Float[Tensor, "leading groups width"]: ...


EncoderName = Literal["paper", "gnn"]
ENCODERS: Mapping[str, Mapping[str, str]] = {"paper": {"encoder": "paper"}, "gnn": {"encoder": "gnn"}}
"""What `PolicyConfig.encoders` is for a policy whose knob `encoder` is the choice."""


def by_switches(neighbours: str) -> dict[str, dict[str, str]]:
    """The encoders of a policy with two switches: what ops are embedded from, and how neighbours enter.

    `neighbours` is the value of the second switch in the policy's paper.
    """
    return {
        "paper": {"features": "paper", "neighbours": neighbours},
        "gnn": {"features": "costs", "neighbours": "messages"},
    }


def encoder_of(
    name: EncoderName, paper: Callable[[], OpEncoder], *, width: int, rounds: int, kept_apart: bool = True
) -> OpEncoder:
    """The encoder of this name: `paper()`, or message passing over the costs of units."""
    return paper() if name == "paper" else UnitGraph(CostColumns(), width=width, rounds=rounds, kept_apart=kept_apart)
