"""The hierarchical policy (Mirhoseini et al., "A Hierarchical Model for Device Placement", ICLR 2018).

A Grouper puts ops into groups (section 3.1), a Placer gives each group a device (section 3.2). Both networks learn from the
log-probabilities of what was measured; no gradient passes through the grouping. The paper's ablations are knobs: random groups, and
no groups at all (`ungrouped.py`). With `encoder: gnn` a GNN embeds the ops instead of the paper's kinds, shapes and neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, assert_never

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnnplace.knobs import above, at_least
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.groups import MeanGroups, sum_by_group
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps, vocabulary
from gnnplace.policies.encoders.protocol import GroupEncoder, OpEncoder
from gnnplace.policies.encoders.unit_graph import UnitGraph
from gnnplace.policies.networks.grouper import Activation, Grouper, RandomGrouping
from gnnplace.policies.networks.seq2seq import Encoded, Seq2Seq
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import ProblemConstants, unit_placements
from gnnplace.policies.ungrouped import Ungrouped
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.units import Units, UnitsName, allowed, units


@dataclass(frozen=True)
class HierarchicalConfig(PolicyConfig):
    """The hierarchical policy (Mirhoseini et al., ICLR 2018): a Grouper and a sequence-to-sequence Placer.

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
    encoder: Literal["paper", "gnn"] = "paper"
    encoder_width: int = 64
    encoder_rounds: int = 3
    grouper: Literal["learned", "random", "none"] = "learned"
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
        self.require_rule()

    @property
    def encodes_with(self) -> str:
        return self.encoder

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """The number of devices, and the paper's vocabulary of op kinds. Raises ValueError where clusters differ in their number."""
        counts = sorted({problem.num_devices for problem in problems})
        if len(counts) > 1:
            numbers = " and ".join(map(str, counts))
            raise ValueError(f"problems: clusters of {numbers} devices, but a hierarchical policy places on one number of them")
        return PolicyShape(counts[0], vocabulary([problem.graph for problem in problems]) if self.encoder == "paper" else ())

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> Hierarchical | Ungrouped:
        match self.grouper:
            case "none":
                ops = self._op_encoder(shape)
                network = self._grouper(ops, shape.devices)
                return Ungrouped(op_encoder=ops, network=network, units=self.units, schedule=self.schedule)
            case "random":  # nothing reads the paper's op embeddings then: its group embeddings are counts
                read = self._op_encoder(shape) if self.encoder == "gnn" else None
                return self._hierarchical(shape, read, RandomGrouping(self.groups, seed), 1)
            case "learned":
                ops = self._op_encoder(shape)
                return self._hierarchical(shape, ops, self._grouper(ops, self.groups), groupings)
            case _:
                assert_never(self.grouper)

    def _op_encoder(self, shape: PolicyShape) -> PaperOps | UnitGraph:
        return PaperOps(shape.kinds) if self.encoder == "paper" else UnitGraph(width=self.encoder_width, rounds=self.encoder_rounds)

    def _grouper(self, encoder: OpEncoder, options: int) -> Grouper:
        return Grouper(encoder.width, options, hidden=self.hidden, activation=self.activation)

    def _hierarchical(
        self, shape: PolicyShape, ops: PaperOps | UnitGraph | None, grouper: Grouper | RandomGrouping, groupings: int
    ) -> Hierarchical:
        groups = MeanGroups(ops.width, self.groups) if isinstance(ops, UnitGraph) else PaperGroups(shape.kinds, self.groups)
        placer = Seq2Seq(groups.width, shape.devices, width=self.width, bound=self.bound, temperature=self.temperature)
        return Hierarchical(
            op_encoder=ops, grouper=grouper, group_encoder=groups, placer=placer,
            groupings=groupings, units=self.units, schedule=self.schedule,
        )  # fmt: skip


class HierarchicalState(NamedTuple):
    """The constants of one problem: a state may be stepped, and re-scored, any number of times."""

    samples: int
    units: Units
    ops: Any
    groups: Any
    allowed: Bool[Tensor, "units devices"]


class Hierarchical(nn.Module):
    """Groups units, then places groups.

    Reads the embeddings of units (`op_encoder`) and of groups (`group_encoder`). `op_encoder` is None where nothing reads op
    embeddings: the paper's group embeddings under a random grouping.

    Decides, in one step an episode, "group" (an option a group, for each unit: `Int[groupings units]`) and then "device" (an option a
    device, for each group in order: `Int[samples groups]`). Sample j places grouping `j // (samples / groupings)`. `groupings` is the
    paper's m; it divides the samples, and a single sample has one grouping. All ops of a unit share a group: the paper has no
    colocation constraint and lets the runtime move ops.

    Legality: a group may stand where all its members may. Where they have no device in common, it may stand where any of them may,
    and a member that may not stand there goes to its first allowed device: the paper's soft placement, the only decision that is not
    the policy's. An empty group may stand anywhere.

    Learns from the summed log-probability of both decisions (eqs. 4 and 6). Its weights are for one number of devices.
    """

    def __init__(
        self,
        *,
        op_encoder: OpEncoder | None,
        grouper: Grouper | RandomGrouping,
        group_encoder: GroupEncoder,
        placer: Seq2Seq,
        groupings: int = 1,
        units: UnitsName = "ops",
        schedule: Schedule = "critical-path",
    ) -> None:
        super().__init__()
        if op_encoder is None and isinstance(grouper, Grouper):
            raise ValueError("op_encoder: a learned grouper reads op embeddings, so it needs one")
        self.op_encoder, self.grouper, self.group_encoder, self.placer = op_encoder, grouper, group_encoder, placer
        self.groupings, self.units, self.schedule = groupings, units, schedule
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> HierarchicalState:
        """Raises ValueError where the Placer has learned another number of devices, or `groupings` does not divide `samples`."""
        if problem.num_devices != self.placer.devices:
            raise ValueError(f"{problem.cluster.name}: {problem.num_devices} devices, but this policy places on {self.placer.devices}")
        if samples > 1 and samples % self.groupings:
            raise ValueError(f"samples: {samples} is not a multiple of the {self.groupings} groupings")
        return self._constants.of(problem, self)._replace(samples=samples)

    def _state(self, problem: Problem) -> HierarchicalState:
        of_ops = units(problem.graph, self.units)
        ops = None if self.op_encoder is None else self.op_encoder.constants(problem, of_ops)
        groups = self.group_encoder.constants(problem, of_ops)
        return HierarchicalState(1, of_ops, ops, groups, torch.from_numpy(allowed(problem, of_ops)))

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        if self.op_encoder is not None:
            self.op_encoder.widen_ranges([self.reset(problem, 1).ops for problem in problems])

    def step(
        self, state: HierarchicalState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], HierarchicalState | None]:
        """All of an episode: one placement for each sample."""
        embeddings = None if self.op_encoder is None else self.op_encoder(state.ops)
        grouping = self._group(state, embeddings, choose)
        encoded = self.placer.encode(self.group_encoder(state.groups, grouping, embeddings))
        devices = self._place(encoded, group_allowed(grouping, state.allowed, self.grouper.options), state.samples, choose)
        device = devices.gather(1, grouping.repeat_interleave(state.samples // len(grouping), 0))
        return unit_placements(state.units, soft_placement(device, state.allowed), self.schedule), None

    def _group(
        self, state: HierarchicalState, embeddings: Float[Tensor, "units width"] | None, choose: Choose
    ) -> Int[Tensor, "leading units"]:
        if isinstance(self.grouper, RandomGrouping):
            return self.grouper.draw(state.units.num_units).to(state.allowed.device)
        leading = 1 if state.samples == 1 else self.groupings
        return choose("group", self.grouper(embeddings).expand(leading, -1, -1))

    def _place(
        self, encoded: Encoded, legal: Bool[Tensor, "leading groups devices"], samples: int, choose: Choose
    ) -> Int[Tensor, "samples groups"]:
        """Step by step, or where the devices are given (replay), in one fused pass."""
        legal = legal.repeat_interleave(samples // len(legal), 0)
        given = choose.given("device")
        if given is None:
            return self.placer.write(encoded, samples, lambda step, logits: choose("device", logits, legal[:, step]))
        logits = self.placer.score(encoded, given.view(samples, -1))
        shape = given.shape  # [samples] where there is one group, else [samples, groups]
        return choose("device", logits.view(*shape, -1), legal.view(*shape, -1)).view(samples, -1)


def group_allowed(
    grouping: Int[Tensor, "leading units"], legal: Bool[Tensor, "units devices"], groups: int
) -> Bool[Tensor, "leading groups devices"]:
    """Where all members of a group may stand; where they have no device in common, where any of them may."""
    forbidden = sum_by_group(grouping, (~legal).float(), groups) > 0
    everyone, anyone = ~forbidden, sum_by_group(grouping, legal.float(), groups) > 0
    return torch.where(everyone.any(-1, keepdim=True), everyone, anyone)


def soft_placement(device: Int[Tensor, "samples units"], legal: Bool[Tensor, "units devices"]) -> Int[Tensor, "samples units"]:
    """Units that may not stand on their group's device stand on the first device that is allowed for them."""
    may = legal[torch.arange(len(legal), device=legal.device), device]
    return torch.where(may, device, legal.int().argmax(dim=1))
