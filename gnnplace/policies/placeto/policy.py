"""Placeto (Addanki, Venkatakrishnan, Gupta, Mao and Alizadeh, NeurIPS 2019): a placement is improved group by group.

It was a workshop paper in 2018.

An episode starts from a complete placement and visits every group of ops once. Each visit may move the group at hand;
everything else stays. A graph neural network embeds the groups of the placement so far (`network.py`), so that what it
learns carries over to graphs that it never saw.

What the papers leave open, decided here: groups are parts that METIS cuts each pass of training into; an episode starts
on the fastest device; groups are visited by when their work can start. Further columns, and a transform of a group's
own columns that is added in every round, are those of the authors' code. The authors left groups that are learned
together with the placement for later: that is `grouper: learned`. The Grouper of Mirhoseini et al. (ICLR 2018) decides
first, and learns from the step time of its groups' placement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor, nn

from gnnplace.knobs import MOST_LAYERS, MOST_WIDTH, above, between
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.clustering import within_passes
from gnnplace.policies.encoders.columns import CostColumns
from gnnplace.policies.encoders.gnn import UnitGraph
from gnnplace.policies.hierarchical.grouper import Grouper
from gnnplace.policies.placeto.graph import (
    SEEDS,
    PlacedGraph,
    UnitFacts,
    columns,
    placed_graph,
    shuffled,
    standing,
    start_times,
    unit_facts,
)
from gnnplace.policies.placeto.network import PlacetoNetwork, visited
from gnnplace.policies.placeto.relatives import Sums
from gnnplace.policies.placing.turns import soft_placement
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import (
    ProblemConstants,
    devices_of_units,
    fastest_device,
    named_devices,
    require_devices,
    unit_placements,
)
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.units import Units, UnitsName, units


@dataclass(frozen=True)
class PlacetoConfig(PolicyConfig):
    """Placeto (Addanki et al., NeurIPS 2019): a graph neural network improves a placement group by group.

    Args:
        kind: names this policy
        grouper: "clustered" = parts of the graph, the same in all episodes; "learned" = by a Grouper, with the
            gradient of the placement
        groups: how many groups at most; as many visits make an episode
        rounds: rounds of message passing in each direction
        residual: whether a transform of a group's own columns is added in each round (the authors' code); off = the
            papers' equation
        sums: messages and pools are the "sum" (the papers) or the "mean" over the groups that they are of
        start_time: whether a column says when each group began in the last step; needs every step's timeline
        memory: whether a column says how many bytes each group keeps
        evaluates: "every" placement of an episode, for training.credit.returns improvement; or its "last"
        start: of an episode: all on the "fastest" device, a "random" placement, or the "best" so far in training
        order: of the visits: "topological" = by when the groups' work can start; or "random" in each episode
        encoder_width: width of the embeddings that a Grouper reads
        encoder_rounds: rounds of message passing that make them
        hidden: width of the Grouper's hidden layer
        sharpness: what the Grouper's logits are multiplied with when it groups, above 0; its pre-training sees them as
            they are
        units: what is grouped
        schedule: how ops are ordered within devices
    """

    kind: Literal["placeto"] = "placeto"
    grouper: Literal["clustered", "learned"] = "clustered"
    groups: int = 128
    rounds: int = 8
    residual: bool = True
    sums: Sums = "sum"
    start_time: bool = False
    memory: bool = False
    evaluates: Literal["every", "last"] = "every"
    start: Literal["fastest", "random", "best"] = "fastest"
    order: Literal["topological", "random"] = "topological"
    encoder_width: int = 64
    encoder_rounds: int = 3
    hidden: int = 64
    sharpness: float = 1.0
    units: UnitsName = "coarse"
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", groups=self.groups, encoder_width=self.encoder_width, hidden=self.hidden)
        between(1, MOST_LAYERS, "policy.", rounds=self.rounds)
        between(0, MOST_LAYERS, "policy.", encoder_rounds=self.encoder_rounds)
        above(0, "policy.", sharpness=self.sharpness)
        self.require_rule()

    @classmethod
    def migrated(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """`grouping` is `grouper` today, as in every policy that groups."""
        return {"grouper" if knob == "grouping" else knob: value for knob, value in document.items()}

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        """Its own GNN alone, because it reads the devices of groups, which no encoder of ops does."""
        return {"gnn": {}}

    @property
    def columns(self) -> int:
        """Columns of a group beside its device: work, bytes, visited, current, and two of the authors' code."""
        return 4 + self.start_time + self.memory

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """Named devices. Raises ValueError if clusters differ in their number."""
        return PolicyShape(named_devices(problems, self.kind))

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> Placeto:
        return Placeto(self, shape.devices, groupings)


class PlacetoConstants(NamedTuple):
    """The constants of a problem: units, input of the op encoder, start of episodes, and the graph of fixed groups."""

    units: Units
    facts: UnitFacts
    ops: Any
    start: Int[Tensor, " units"]
    graph: PlacedGraph | None


class PlacetoState(NamedTuple):
    """The state of an episode: the graph of groups, their devices, and the number of visited groups.

    The first step makes graph and devices.
    """

    samples: int
    constants: PlacetoConstants
    graph: PlacedGraph | None = None
    device: Int[Tensor, "samples groups"] | None = None
    turn: int = 0


class Placeto(nn.Module):
    """Visits one group after another and chooses its device, given the placement of all others.

    Reads of every group (`graph.columns`) its work where it stands, the bytes that it produces, whether it was visited,
    whether it is its turn, its device; optionally when it began in the last step (feedback "timeline") and the bytes
    that it keeps. Messages run along the graph of groups and against it; the group at hand sees pools of its ancestors,
    of its descendants and of the others.

    Decides in the first step of an episode, which proposes its start, "group" (an option a group, for each unit:
    `Int[groupings units]`) where groups are learned, "order" (a seed for each grouping) where visits are in random
    order, "start" (an option a device, for each group: `Int[samples groups]`) where the start is random. Then in each
    step "device": that of the group at hand, `Int[samples]`, among those where all its members may stand; where they
    have no device in common, as in `Hierarchical`. An episode has as many visits as there are groups, units at most;
    empty groups come last and have no choice.

    Learns from the log-probability of each step's decisions. Under `evaluates: every` a visit is rewarded for its
    improvement, else for the last placement. The first step, and so the Grouper, is rewarded for the last placement
    either way. A Grouper can imitate a clustering (`grouping_target`). Weights are for one number of devices.
    """

    def __init__(self, knobs: PlacetoConfig, devices: int, groupings: int = 1) -> None:
        super().__init__()
        self.knobs, self.devices, self.groupings = knobs, devices, groupings
        self.feedback, self.evaluates = "timeline" if knobs.start_time else "none", knobs.evaluates
        width = knobs.columns + devices
        self.network = PlacetoNetwork(width, devices, rounds=knobs.rounds, residual=knobs.residual, sums=knobs.sums)
        self.op_encoder: UnitGraph | None = None
        self.grouper: Grouper | None = None
        if knobs.grouper == "learned":
            self.op_encoder = UnitGraph(CostColumns(), width=knobs.encoder_width, rounds=knobs.encoder_rounds)
            self.grouper = Grouper(knobs.encoder_width, knobs.groups, hidden=knobs.hidden, sharpness=knobs.sharpness)
        self._constants = ProblemConstants(self._of_problem)
        self._best: WeakKeyDictionary[Problem, Int[Tensor, " units"]] = WeakKeyDictionary()

    def reset(self, problem: Problem, samples: int) -> PlacetoState:
        """Raises ValueError if the policy has learned another number of devices."""
        require_devices(problem, self.devices)
        constants = self._constants.of(problem, self)
        if problem in self._best:
            constants = constants._replace(start=self._best[problem].to(constants.start.device))
        return PlacetoState(samples, constants)

    def _of_problem(self, problem: Problem) -> PlacetoConstants:
        grouped = units(problem.graph, self.knobs.units)
        facts = unit_facts(problem, grouped)
        start = torch.full((grouped.num_units,), fastest_device(problem))
        if self.op_encoder is not None:
            return PlacetoConstants(grouped, facts, self.op_encoder.constants(problem, grouped), start, None)
        few = grouped.num_units <= self.knobs.groups
        if few:
            group = torch.arange(grouped.num_units)
        else:
            group = torch.from_numpy(within_passes(problem, grouped, self.knobs.groups))
        used, group = group.unique(return_inverse=True)
        graph = placed_graph(facts, group[None], len(used), self.knobs.sums)
        return PlacetoConstants(grouped, facts, None, start, graph)

    def continue_from(self, problem: Problem, placement: Placement) -> None:
        """Starts later episodes of the problem from this placement, with `start: best`."""
        if self.knobs.start == "best":
            self._best[problem] = torch.from_numpy(
                devices_of_units(problem, units(problem.graph, self.knobs.units), placement)
            )

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        if self.op_encoder is not None:
            self.op_encoder.widen_ranges([self.reset(problem, 1).constants.ops for problem in problems])

    def step(
        self, state: PlacetoState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], PlacetoState | None]:
        """The start, then the placement after each visit."""
        state = self._begun(state, choose) if state.graph is None else self._visited(state, choose, feedback)
        graph, device = state.graph, state.device
        assert graph is not None and device is not None
        of_unit = device.gather(1, graph.grouping.repeat_interleave(len(device) // len(graph.grouping), 0))
        placements = unit_placements(
            state.constants.units, soft_placement(of_unit, state.constants.facts.allowed), self.knobs.schedule
        )
        done = state.turn == min(graph.order.shape[1], state.constants.units.num_units)
        return placements, None if done else state

    def _begun(self, state: PlacetoState, choose: Choose) -> PlacetoState:
        """The state with its groups, their order and their first devices."""
        constants, graph = state.constants, state.constants.graph
        if graph is None:
            grouping = self._group(state, choose)
            graph = placed_graph(constants.facts, grouping, self.knobs.groups, self.knobs.sums)
        if self.knobs.order == "random":
            graph = shuffled(graph, choose("order", graph.work.new_zeros(len(graph.order), SEEDS)))
        samples = state.samples // len(graph.order)  # of each grouping
        if self.knobs.start == "random":
            legal = graph.allowed.repeat_interleave(samples, 0)
            device = choose("start", torch.zeros_like(legal, dtype=torch.float32), legal)
            return state._replace(graph=graph, device=device)
        device = standing(graph, constants.facts, constants.start).repeat_interleave(samples, 0)
        return state._replace(graph=graph, device=device)

    def _visited(self, state: PlacetoState, choose: Choose, feedback: Sequence[StepResult] | None) -> PlacetoState:
        """The state after the visit of the next group."""
        graph, device = state.graph, state.device
        assert graph is not None and device is not None
        current, samples = graph.order[:, state.turn], len(device) // len(graph.order)
        began = start_times(graph, state.constants.facts, len(device), feedback) if self.knobs.start_time else None
        node = columns(graph, device, state.turn, began, self.knobs.memory)
        logits = visited(self.network, node, graph.relatives, current, visits=graph.order.shape[1]).flatten(0, 1)
        legal = graph.allowed[torch.arange(len(current), device=current.device), current].repeat_interleave(samples, 0)
        chosen = choose("device", logits, legal)
        moved = device.scatter(1, current.repeat_interleave(samples, 0).unsqueeze(1), chosen.unsqueeze(1))
        return state._replace(device=moved, turn=state.turn + 1)

    def group(self, state: PlacetoState, choose: Choose) -> Int[Tensor, "leading units"]:
        """The first decision alone, from the Grouper's logits as they are."""
        return self._group(state, choose, sharp=False)

    def _group(self, state: PlacetoState, choose: Choose, *, sharp: bool = True) -> Int[Tensor, "leading units"]:
        assert self.op_encoder is not None and self.grouper is not None
        recorded = choose.given("group")
        leading = math.gcd(state.samples, self.groupings) if recorded is None else len(recorded)
        embeddings = self.op_encoder(state.constants.ops)
        logits = self.grouper.sharp(embeddings) if sharp else self.grouper(embeddings)
        return choose("group", logits.expand(leading, -1, -1))

    @property
    def learns_groups(self) -> bool:
        """Whether groups are a Grouper's."""
        return self.grouper is not None

    def grouping_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the op encoder and of the Grouper; none if groups are fixed."""
        for part in (self.op_encoder, self.grouper):
            if part is not None:
                yield from part.parameters()

    def grouping_target(self, problem: Problem) -> Mapping[str, Int[Tensor, "1 units"]]:
        """The clustering of a problem's units as choices of "group".

        Raises ValueError if groups are fixed: then they are that clustering.
        """
        if self.grouper is None:
            raise ValueError(
                "training.grouping.updates: a policy with policy.grouper 'clustered' has no groups to learn; set "
                "it to 0"
            )
        group = within_passes(problem, units(problem.graph, self.knobs.units), self.knobs.groups)
        return {"group": torch.from_numpy(group)[None].to(next(self.parameters()).device)}
