"""The hierarchical policy (Mirhoseini et al., "A Hierarchical Model for Device Placement", ICLR 2018).

A Grouper puts ops into groups (section 3.1), a Placer gives each group a device (section 3.2). Both networks learn from
the log-probabilities of the measured samples; no gradient passes through the grouping. The paper's ablations are knobs:
random groups, and no groups at all (`Ungrouped`). The encoder has two switches: `features` and `neighbours`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from gnnplace.knobs import MOST_LAYERS, MOST_OF_A_STEP, MOST_WIDTH, above, at_least, between
from gnnplace.placement import Schedule
from gnnplace.policies.encoders.columns import Columns, CostColumns, CostOps, PaperColumns
from gnnplace.policies.encoders.encoder import GroupEncoder, OpEncoder, by_switches
from gnnplace.policies.encoders.gnn import Aggregate, UnitGraph
from gnnplace.policies.encoders.groups import MeanGroups
from gnnplace.policies.encoders.kinds import CANONICAL, Vocabulary, vocabulary
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps
from gnnplace.policies.hierarchical.fixed import ClusteredGrouping, RandomGrouping, ScheduledGrouping
from gnnplace.policies.hierarchical.group_graph import GroupGraph
from gnnplace.policies.hierarchical.grouper import Activation, Grouper, Grouping
from gnnplace.policies.hierarchical.parsed import ParsingGrouper
from gnnplace.policies.hierarchical.policy import Hierarchical, Rounds, Ungrouped
from gnnplace.policies.placing.base import BASE_OBSERVATIONS, STAYS
from gnnplace.policies.placing.base_search import Candidates
from gnnplace.policies.placing.observations import OBSERVATIONS
from gnnplace.policies.placing.placer import ObservingPlacer, Placer, Seq2Seq
from gnnplace.policies.protocol import PolicyConfig, PolicyShape
from gnnplace.policies.states import named_devices
from gnnplace.problems import Problem
from gnnplace.units.units import UnitsName

ENCODERS = by_switches("indices")


@dataclass(frozen=True)
class HierarchicalConfig(PolicyConfig):
    """The hierarchical policy (Mirhoseini et al., ICLR 2018): a Grouper and a sequence-to-sequence Placer.

    Args:
        kind: names this policy
        features: what ops are embedded from: "paper" = kind and output shapes; "costs" = times, memory, slack, place in
            the step
        neighbours: "indices" = of 12 neighbours, and a column for each group, as in the paper; "messages" = a GNN over
            ops, one over groups
        kinds: with the paper's features; "own" = the 200 most frequent of the training graphs; "canonical" = those all
            frameworks share
        devices: "names" = an embedding and an output for each, as in the paper; "observed" = scored by their state, any
            number of them
        encoder_width: width of the GNNs' embeddings
        encoder_rounds: the GNNs' rounds of message passing
        aggregate: what a node of the GNNs hears of its neighbours: their "mean", or "several": mean, sum, largest and
            standard deviation
        groups_apart: whether the mean of a graph's groups is subtracted from the GNN's embedding of each
        grouper: "learned"; "parsed" = pieces that the best edges join, scored by a network that a clustering teaches;
            "clustered" = METIS's parts of each graph; "scheduled" = METIS's parts within each device of
            the base schedule; "random" = fixed random groups; "none" = a device for each unit from the same network,
            no Placer
        groups: how many groups
        hidden: width of the Grouper's hidden layer
        activation: of the Grouper's hidden layer
        sharpness: what the Grouper's logits are multiplied with when it groups, above 0; its pre-training sees them as
            they are
        width: width of the Placer's LSTMs
        bound: C of the Placer's logits C tanh(l / T)
        temperature: T of the Placer's logits
        bases: candidates for the base schedule that is observed (with observed devices): the fastest device alone, then
            list schedules and random stages; each is an evaluation, and 0 = no base
        fed_back: how many of these feed back the fastest of those before, one at a time; in a step of several
            micro-batches the last two are the fastest in other orders
        rounds: how often an episode places all groups; from the second round on, its best placement so far is the base
        base_logit: what the base's device adds to a logit at first, before C and T, at least 0
        units: what is grouped
        schedule: how ops are ordered within devices; with a base in a step of several micro-batches, as in the base
    """

    kind: Literal["hierarchical"] = "hierarchical"
    features: Literal["paper", "costs"] = "paper"
    neighbours: Literal["indices", "messages"] = "indices"
    kinds: Literal["own", "canonical"] = "own"
    devices: Literal["names", "observed"] = "names"
    encoder_width: int = 64
    encoder_rounds: int = 3
    aggregate: Aggregate = "mean"
    groups_apart: bool = True
    grouper: Literal["learned", "parsed", "clustered", "scheduled", "random", "none"] = "learned"
    groups: int = 256
    hidden: int = 64
    activation: Activation = "relu"
    sharpness: float = 1.0
    width: int = 256
    bound: float = 5.0
    temperature: float = 10.0
    bases: int = 0
    fed_back: int = 0
    rounds: int = 1
    base_logit: float = 0.0
    units: UnitsName = "ops"
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(
            1,
            MOST_WIDTH,
            "policy.",
            encoder_width=self.encoder_width,
            groups=self.groups,
            hidden=self.hidden,
            width=self.width,
        )
        between(0, MOST_LAYERS, "policy.", encoder_rounds=self.encoder_rounds)
        between(0, MOST_OF_A_STEP, "policy.", bases=self.bases, fed_back=self.fed_back)
        between(1, MOST_OF_A_STEP, "policy.", rounds=self.rounds)
        at_least(0, "policy.", base_logit=self.base_logit)
        above(0, "policy.", bound=self.bound, temperature=self.temperature, sharpness=self.sharpness)
        if self.grouper == "none" and self.devices == "observed":
            raise ValueError(
                "policy.devices: 'observed' is the Placer's, and there is none with policy.grouper 'none'; choose "
                "'names'"
            )
        if self.rounds > 1 and not self.bases:
            raise ValueError("policy.rounds: later rounds observe a base schedule; set policy.bases")
        if self.fed_back and self.fed_back >= self.bases:
            raise ValueError(
                f"policy.fed_back: {self.fed_back} of {self.bases} candidates feed back one before, and none is before "
                "the first; set policy.bases higher"
            )
        if self.bases and self.devices == "names":
            raise ValueError("policy.bases: the base is an observation; set policy.devices to 'observed'")
        if self.grouper == "scheduled" and not self.bases:
            raise ValueError("policy.grouper: 'scheduled' groups need a base schedule; set policy.bases")
        self.require_rule()

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        return ENCODERS

    @classmethod
    def migrated(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """`encoder: paper` is two switches today.

        That of `gnn` had a column for each group beside its messages, which no switch means.
        """
        if "encoder" not in document:
            return document
        if document["encoder"] != "paper":
            raise ValueError(
                f"policy.encoder: {document['encoder']!r} of an older version has weights that no policy of today has"
            )
        return {knob: value for knob, value in document.items() if knob != "encoder"} | ENCODERS["paper"]

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """Named devices and own kinds.

        Raises ValueError if clusters differ in their number of devices, and these have names.
        """
        devices = named_devices(problems, self.kind) if self.devices == "names" else 0
        own_kinds = self.features == "paper" and self.kinds == "own"
        return PolicyShape(devices, vocabulary([problem.graph for problem in problems]).words if own_kinds else ())

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> Hierarchical | Ungrouped:
        match self.grouper:
            case "none":
                ops = self._op_encoder(shape)
                network = self._grouper(ops, shape.devices)
                return Ungrouped(op_encoder=ops, network=network, units=self.units, schedule=self.schedule)
            case "random":
                return self._hierarchical(shape, self._read(shape), RandomGrouping(self.groups, seed), 1)
            case "clustered":
                return self._hierarchical(shape, self._read(shape), ClusteredGrouping(self.groups), 1)
            case "scheduled":
                return self._hierarchical(shape, self._read(shape), ScheduledGrouping(self.groups), 1)
            case "parsed":
                ops = self._op_encoder(shape)
                return self._hierarchical(shape, ops, ParsingGrouper(ops.width, self.groups, hidden=self.hidden), 1)
            case "learned":
                ops = self._op_encoder(shape)
                return self._hierarchical(shape, ops, self._grouper(ops, self.groups), groupings)
            case _:
                assert_never(self.grouper)

    def _hierarchical(
        self,
        shape: PolicyShape,
        ops: OpEncoder | None,
        grouper: Grouping,
        groupings: int,
    ) -> Hierarchical:
        groups = self._group_encoder(shape, ops)
        return Hierarchical(
            op_encoder=ops, grouper=grouper, group_encoder=groups, placer=self._placer(groups.width, shape.devices),
            groupings=groupings, rounds=Rounds(self.rounds, Candidates(self.bases, self.fed_back)),
            units=self.units, schedule=self.schedule,
        )  # fmt: skip

    def _read(self, shape: PolicyShape) -> OpEncoder | None:
        """What the embeddings of fixed groups are made of: the paper's are counts, and read no op's."""
        return None if self.encodes_with == "paper" else self._op_encoder(shape)

    def _vocabulary(self, shape: PolicyShape) -> Vocabulary:
        return CANONICAL if self.kinds == "canonical" else Vocabulary(shape.kinds)

    def _columns(self, shape: PolicyShape) -> Columns:
        return PaperColumns(self._vocabulary(shape)) if self.features == "paper" else CostColumns()

    def _op_encoder(self, shape: PolicyShape) -> OpEncoder:
        if self.neighbours == "messages":
            return UnitGraph(
                self._columns(shape), width=self.encoder_width, rounds=self.encoder_rounds, aggregate=self.aggregate
            )
        return PaperOps(self._vocabulary(shape)) if self.features == "paper" else CostOps()

    def _group_encoder(self, shape: PolicyShape, ops: OpEncoder | None) -> GroupEncoder:
        if ops is None or isinstance(ops, PaperOps):
            return PaperGroups(self._vocabulary(shape), self.groups)
        if self.neighbours == "indices":
            return MeanGroups(ops.width, self.groups)
        return GroupGraph(
            self._columns(shape), ops.width, self.groups, width=self.encoder_width, rounds=self.encoder_rounds,
            aggregate=self.aggregate, kept_apart=self.groups_apart,
        )  # fmt: skip

    def _grouper(self, encoder: OpEncoder, options: int) -> Grouper:
        return Grouper(encoder.width, options, hidden=self.hidden, activation=self.activation, sharpness=self.sharpness)

    def _placer(self, group_width: int, devices: int) -> Placer:
        if self.devices == "names":
            return Seq2Seq(group_width, devices, width=self.width, bound=self.bound, temperature=self.temperature)
        observations = len(OBSERVATIONS) + (len(BASE_OBSERVATIONS) if self.bases else 0)
        placer = ObservingPlacer(
            group_width, observations, width=self.width, bound=self.bound, temperature=self.temperature
        )
        if self.bases:
            placer.scorer.expect(len(OBSERVATIONS) + STAYS, self.base_logit)
        return placer
