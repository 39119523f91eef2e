"""The Grouper: a feed-forward network that scores every group for each op, independently of the other ops.

One hidden layer of 64 (Mirhoseini et al., ICLR 2018, section 3.1). The paper names no activation: ReLU here, and
`linear` is the authors' public code, where the two layers make one linear map of rank 64. With as many options as
devices the same network is the paper's ablation without grouping. `Grouping` is what any mechanism of groups does: the
Grouper, groups by graph parsing (`parsed.py`), and fixed ones (`fixed.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.glorot import glorot
from gnnplace.policies.placing.base import Base
from gnnplace.policies.protocol import Choose
from gnnplace.problems import Problem
from gnnplace.units.units import Units

Activation = Literal["relu", "linear"]


class Grouped(NamedTuple):
    """The group of each unit, and what the embeddings of groups are multiplied by (None: by 1)."""

    of_unit: Int[Tensor, "leading units"]
    inner: Float[Tensor, "1 groups 1"] | None = None


@runtime_checkable
class Grouping(Protocol):
    """A mechanism that puts the units of a problem into at most `options` groups.

    `taught`: a clustering can teach its weights. `learns`: its decision "group" has a log-probability of its own, so no
    gradient of the Placer reaches what it reads. `scheduled`: it waits for the base schedule.
    """

    taught: ClassVar[bool]
    learns: ClassVar[bool]
    scheduled: ClassVar[bool]

    @property
    def options(self) -> int: ...

    def reads(self, problem: Problem, units: Units, base: Base | None) -> Any:
        """What it reads of a problem, in tensors; None before the base that it waits for is known."""
        ...

    def fixed(self, reads: Any) -> Int[Tensor, "1 units"] | None:
        """The groups where no weight decides them."""
        ...

    def group(
        self, reads: Any, embeddings: Float[Tensor, "units width"] | None, choose: Choose, groupings: int
    ) -> Grouped:
        """Groups the units; a Grouper decides as many groupings, or as a tape has recorded."""
        ...

    def decide(
        self, reads: Any, embeddings: Float[Tensor, "units width"], choose: Choose, groupings: int
    ) -> Int[Tensor, "leading questions"]:
        """The decision that a clustering teaches, by itself."""
        ...

    def target(self, reads: Any, group: Int[Tensor, " units"]) -> Mapping[str, Int[Tensor, "1 questions"]]:
        """A clustering as choices of that decision."""
        ...


class Grouper(nn.Module):
    """The logits of `options` for each op, from the op's embedding.

    After imitation a Grouper is unsure of many ops, and independent draws break groups up: `sharpness` multiplies the
    logits when it groups (`sharp`), not while it is taught.
    """

    taught: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    scheduled: ClassVar[bool] = False

    def __init__(
        self, width: int, options: int, *, hidden: int = 64, activation: Activation = "relu", sharpness: float = 1.0
    ) -> None:
        super().__init__()
        self.options, self.sharpness = options, sharpness
        between = nn.ReLU() if activation == "relu" else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(width, hidden), between, nn.Linear(hidden, options))
        glorot(self)

    def forward(self, embeddings: Float[Tensor, "ops width"]) -> Float[Tensor, "ops options"]:
        return self.layers(embeddings)

    def sharp(self, embeddings: Float[Tensor, "ops width"]) -> Float[Tensor, "ops options"]:
        """The logits by which ops are grouped."""
        return self.sharpness * self(embeddings)

    def reads(self, problem: Problem, units: Units, base: Base | None) -> tuple[()]:
        return ()

    def fixed(self, reads: Any) -> None:
        return None

    def group(
        self, reads: Any, embeddings: Float[Tensor, "units width"] | None, choose: Choose, groupings: int
    ) -> Grouped:
        assert embeddings is not None
        recorded = choose.given("group")
        leading = groupings if recorded is None else len(recorded)
        return Grouped(choose("group", self.sharp(embeddings).expand(leading, -1, -1)))

    def decide(
        self, reads: Any, embeddings: Float[Tensor, "units width"], choose: Choose, groupings: int
    ) -> Int[Tensor, "leading units"]:
        return choose("group", self(embeddings).expand(groupings, -1, -1))

    def target(self, reads: Any, group: Int[Tensor, " units"]) -> Mapping[str, Int[Tensor, "1 units"]]:
        return {"group": group[None]}
