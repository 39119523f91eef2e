"""What encoders promise: embeddings of units, and of groups of units,
from constants of the problem that are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

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
