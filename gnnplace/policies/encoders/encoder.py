"""The one choice of an encoder, `--encoder`: that of the policy's own
paper, or the GNN that all of them can take (`UnitGraph`).
"""

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

    `widen_ranges` is shown the constants of all training problems before the encoder learns.
    """

    width: int

    def constants(self, problem: Problem, units: Units) -> Any: ...

    def widen_ranges(self, constants: Sequence[Any]) -> None: ...

    def __call__(self, constants: Any) -> Float[Tensor, "units width"]: ...


@runtime_checkable
class ShowsOwn(OpEncoder, Protocol):
    """An op encoder that also gives what each unit is known by without its neighbours: what a critic reads."""

    own_width: int

    def own(self, constants: Any) -> Float[Tensor, "units own_width"]: ...


@runtime_checkable
class GroupEncoder(Protocol):
    """Embeds the groups of each grouping, from constants of the problem and from its members' embeddings where it reads
    them.

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
