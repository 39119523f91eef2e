"""The unit placer: it places units one after another, and scores every device for each of them.

A score depends on a GNN's embedding of the unit and on the observations of the device.

The Placer of Mirhoseini et al. (ICLR 2018, section 3.2) writes one device for each group, from a softmax over device
names. The unit placer keeps the autoregressive decision and replaces names by observations (load, free memory, links,
bytes shared with units on the device). So equal devices differ by their state alone, any number of devices works, and
weights transfer between clusters. It comes from no paper; `encoder: paper` is that paper's embedding of ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from gnnplace.knobs import MOST_LAYERS, MOST_WIDTH, between
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.encoder import ENCODERS, EncoderName, encoder_of
from gnnplace.policies.encoders.kinds import CANONICAL
from gnnplace.policies.encoders.paper import PaperOps
from gnnplace.policies.placing.observations import OBSERVATIONS, STATIC, PartialPlacements, UnitTables
from gnnplace.policies.placing.placer import DeviceScorer
from gnnplace.policies.placing.unit_tables import unit_tables
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import ProblemConstants, devices_of_units, unit_placements
from gnnplace.policies.symmetry import by_first_use
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.paths import decision_order
from gnnplace.units.units import Units, UnitsName, allowed, units


@dataclass(frozen=True)
class UnitPlacerConfig(PolicyConfig):
    """The autoregressive placer of units that sees each device's load, memory and links.

    Args:
        kind: names this policy
        units: what is placed together
        encoder: what embeds units; "gnn" = costs and messages; "paper" = kinds, shapes and neighbours as in Mirhoseini
            et al. (ICLR 2018)
        width: width of the GNN's embeddings
        rounds: the GNN's rounds of message passing; 0 = units don't see their neighbours, an ablation
        hidden: width of the scorer's hidden layer
        state_features: whether a decision sees the devices' current state; off = an ablation
        schedule: how ops are ordered within devices
    """

    kind: Literal["unit-placer"] = "unit-placer"
    units: UnitsName = "coarse"
    encoder: EncoderName = "gnn"
    width: int = 64
    rounds: int = 3
    hidden: int = 32
    state_features: bool = True
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", width=self.width, hidden=self.hidden)
        between(0, MOST_LAYERS, "policy.", rounds=self.rounds)
        self.require_rule()

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        return ENCODERS

    @property
    def encodes_with(self) -> str:
        return "costs" if self.encoder == "gnn" and not self.rounds else self.encoder

    @classmethod
    def migrated(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """`message_passing: false` was `rounds: 0`."""
        kept = {knob: value for knob, value in document.items() if knob != "message_passing"}
        return kept if document.get("message_passing", True) else kept | {"rounds": 0}

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> UnitPlacer:
        return UnitPlacer(self)


class UnitPlacerState(NamedTuple):
    """The constants of one problem: its units, the order of their placement, and the input of the networks."""

    samples: int
    units: Units
    order: Int64[np.ndarray, " units"]
    tables: UnitTables
    features: Any
    allowed: Bool[Tensor, "units devices"]  # in order


class UnitPlacer(nn.Module):
    """Places one unit after another, in order of their time in the step.

    Reads the features of the graph of units (`features.py`), which a GNN embeds, or kinds, shapes and neighbours
    (`PaperOps`, of the kinds that all frameworks share). Of each device it reads the observations before each decision
    (`observations.py`), `Float[samples devices observations]`. A scorer shared by all devices makes a logit of both.

    Decides, in one step an episode, "device": one question a unit, `Int[samples]`, among the devices where all its ops
    may stand. When its decisions are replayed it asks all of them at once, `Int[samples units]`.

    Learns from the summed log-probability of its decisions; it can imitate a placement (`choices`). Its features are
    clamped to their range in training. Its weights are for any number of devices and any vocabulary. Without rounds of
    message passing or without `state_features` it is an ablation.
    """

    older_names: ClassVar[Mapping[str, str]] = {"encoder.": "op_encoder.encoder."}
    seen: Tensor

    def __init__(self, knobs: UnitPlacerConfig) -> None:
        super().__init__()
        self.knobs = knobs
        self.op_encoder = encoder_of(
            knobs.encoder, lambda: PaperOps(CANONICAL), width=knobs.width, rounds=knobs.rounds, kept_apart=False
        )
        self.scorer = DeviceScorer(self.op_encoder.width, len(OBSERVATIONS), knobs.hidden)
        seen = torch.tensor([knobs.state_features or name in STATIC for name in OBSERVATIONS])
        self.register_buffer("seen", seen.float(), persistent=False)
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> UnitPlacerState:
        return self._constants.of(problem, self)._replace(samples=samples)

    def _state(self, problem: Problem) -> UnitPlacerState:
        placed = units(problem.graph, self.knobs.units)
        order = decision_order(problem, placed)
        legal = torch.from_numpy(allowed(problem, placed)[order])
        constants = self.op_encoder.constants(problem, placed)
        return UnitPlacerState(1, placed, order, unit_tables(problem, placed, order), constants, legal)

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        self.op_encoder.widen_ranges([self.reset(problem, 1).features for problem in problems])

    def step(
        self, state: UnitPlacerState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], UnitPlacerState | None]:
        """The whole episode: one placement for each sample."""
        embedding = self.op_encoder(state.features)[torch.from_numpy(state.order).to(self.seen.device)]
        terms = self.scorer.unit_term(embedding)
        recorded = choose.given("device")
        device = (
            self._place(state, terms, choose) if recorded is None else self._rescore(state, terms, choose, recorded)
        )
        by_unit = np.empty_like(device)
        by_unit[:, state.order] = device
        return unit_placements(state.units, torch.from_numpy(by_unit), self.knobs.schedule), None

    def _place(
        self, state: UnitPlacerState, terms: Float[Tensor, "units hidden"], choose: Choose
    ) -> Int64[np.ndarray, "samples units"]:
        partial = PartialPlacements(state.tables, state.samples)
        for step, legal in enumerate(state.allowed):
            observed = torch.from_numpy(partial.observe()).to(self.seen.device) * self.seen
            logits = self.scorer(terms[step], observed)
            partial.place(choose("device", logits, legal).cpu().numpy())
        return partial.device

    def _rescore(
        self,
        state: UnitPlacerState,
        terms: Float[Tensor, "units hidden"],
        choose: Choose,
        recorded: Int[Tensor, "samples *steps"],
    ) -> Int64[np.ndarray, "samples units"]:
        """All decisions of known placements in one pass."""
        recorded = recorded.reshape(len(recorded), -1)  # a single unit's choices come without an axis of units
        partial = PartialPlacements(state.tables, len(recorded))
        observed = torch.from_numpy(partial.replay(recorded.cpu().numpy())).to(self.seen.device)
        return choose("device", self.scorer(terms, observed * self.seen), state.allowed).cpu().numpy()

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 units"]]:
        """The device with most of each unit's work; interchangeable devices are renamed by first use."""
        state = self.reset(problem, 1)
        device = devices_of_units(problem, state.units, placement)[state.order]
        return {"device": torch.from_numpy(by_first_use(problem, device))[None].to(self.seen.device)}
