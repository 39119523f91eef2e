"""The knobs of each policy: its networks, what it places together and in which order ops run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnplace.config.checks import above, at_least
from gnnplace.placement import RULES, Schedule

UnitsName = Literal["ops", "weights", "coarse"]  # what is placed together: see transforms/units
GrouperName = Literal["learned", "random", "none"]
EncoderName = Literal["paper", "gnn"]
Activation = Literal["relu", "linear"]


@dataclass(frozen=True)
class HierarchicalConfig:
    """The Hierarchical Planner (ICLR 2018): a Grouper and a sequence-to-sequence Placer.

    Args:
        kind: names this policy
        encoder: "paper" embeds type, output shapes and neighbours; "gnn" passes messages over the graph
        encoder_width: width of the gnn's embeddings
        encoder_rounds: the gnn's rounds of message passing
        grouper: "learned"; "random" = fixed random groups; "none" = a device for each unit from the same network, no Placer
        groups: how many groups
        hidden: width of the Grouper's hidden layer
        activation: of the Grouper's hidden layer
        width: width of the Placer's LSTMs
        bound: C of the Placer's logits C tanh(l / T)
        temperature: T of the Placer's logits
        units: what is grouped
        schedule: how ops are ordered within devices
    """

    kind: Literal["hierarchical"] = "hierarchical"
    encoder: EncoderName = "paper"
    encoder_width: int = 64
    encoder_rounds: int = 3
    grouper: GrouperName = "learned"
    groups: int = 256
    hidden: int = 64
    activation: Activation = "relu"
    width: int = 256
    bound: float = 5.0
    temperature: float = 10.0
    units: UnitsName = "ops"
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        at_least(1, "policy.", encoder_width=self.encoder_width, groups=self.groups, hidden=self.hidden, width=self.width)
        at_least(0, "policy.", encoder_rounds=self.encoder_rounds)
        above(0, "policy.", bound=self.bound, temperature=self.temperature)
        _without_priorities(self.schedule)


@dataclass(frozen=True)
class UnitPlacerConfig:
    """The autoregressive placer of units that sees each device's load, memory and links.

    Args:
        kind: names this policy
        units: what is placed together
        width: width of embeddings
        rounds: rounds of message passing
        hidden: width of the scorer's hidden layer
        message_passing: whether units see their neighbours; off = an ablation
        state_features: whether a decision sees the devices' current state; off = an ablation
        schedule: how ops are ordered within devices
    """

    kind: Literal["unit-placer"] = "unit-placer"
    units: UnitsName = "coarse"
    width: int = 64
    rounds: int = 3
    hidden: int = 32
    message_passing: bool = True
    state_features: bool = True
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        at_least(1, "policy.", width=self.width, hidden=self.hidden)
        at_least(0, "policy.", rounds=self.rounds)
        _without_priorities(self.schedule)


PolicyConfig = HierarchicalConfig | UnitPlacerConfig


def _without_priorities(schedule: Schedule) -> None:
    if schedule == "given":
        raise ValueError(f"policy.schedule: 'given' needs priorities, which this policy doesn't propose; choose {', '.join(RULES)}")
