"""Placeto (Addanki, Venkatakrishnan, Gupta, Mao and Alizadeh, NeurIPS 2019; as a workshop paper 2018): a placement
improved group by group.

An episode starts from a complete placement and visits every group of ops once. Each visit may move the group at hand;
everything else stays. A graph neural network embeds the groups of the placement so far (`network.py`), so that what it
learns carries over to graphs that it never saw.

What the papers leave open and what is done: groups are parts that METIS cuts each pass of training into; an episode
starts on the fastest device; groups are visited by when their work can start. Further columns, and a transform of a
group's own columns that is added in every round, are those of the authors' code. What the authors left for later,
groups learned together with the placement, is `grouping: learned`: the Grouper of Mirhoseini et al. (ICLR 2018) decides
first and learns from what its groups' placement takes.
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
    """Placeto (Addanki et al., NeurIPS 2019): group by group a placement is improved, as a graph neural network sees
    it.

    Args:
        kind: names this policy
        grouping: "clustered" = parts of the graph, the same in all episodes; "learned" = by a Grouper, with the
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
    grouping: Literal["clustered", "learned"] = "clustered"
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

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        """Its own GNN alone: it reads where groups stand, which no encoder of ops knows."""
        return {"gnn": {}}

    @property
    def columns(self) -> int:
        """Columns of a group beside its device: work, bytes, visited, current, and those of the code."""
        return 4 + self.start_time + self.memory

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """Named devices. Raises ValueError where clusters differ in their number."""
        return PolicyShape(named_devices(problems, self.kind))

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> Placeto:
        return Placeto(self, shape.devices, groupings)


class PlacetoConstants(NamedTuple):
    """Of a problem: its units, what an op encoder reads of them, the start of
    episodes, and the graph of groups where these are fixed.
    """

    units: Units
    facts: UnitFacts
    ops: Any
    start: Int[Tensor, " units"]
    graph: PlacedGraph | None


class PlacetoState(NamedTuple):
    """Where an episode stands: the graph of groups and their devices, which
    the first step makes, and how many groups were visited.
    """

    samples: int
    of: PlacetoConstants
    graph: PlacedGraph | None = None
    device: Int[Tensor, "samples groups"] | None = None
    turn: int = 0


class Placeto(nn.Module):
    """Visits one group after another and chooses its device, given the placement of all others.

    Reads of every group (`placed_graph.columns`) its work where it stands, the bytes that it produces, whether it was
    visited, whether it is its turn, its device; optionally when it began in the last step (feedback "timeline") and the
    bytes that it keeps. Messages run along the graph of groups and against it; the group at hand sees pools of its
    ancestors, of its descendants and of the others.

    Decides in the first step of an episode, which proposes its start, "group" (an option a group, for each unit:
    `Int[groupings units]`) where groups are learned, "order" (a seed for each grouping) where visits are in random
    order, "start" (an option a device, for each group: `Int[samples groups]`) where the start is random. Then in each
    step "device": that of the group at hand, `Int[samples]`, among those where all its members may stand; where they
    have no device in common, as in `Hierarchical`. An episode has as many visits as there are groups, units at most;
    empty groups come last and have no choice.

    Learns from the log-probability of each step's decisions: under `evaluates: every` from what each visit improves,
    else from what the last placement takes; the first step, and so the Grouper, from what the last placement takes
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
        if knobs.grouping == "learned":
            self.op_encoder = UnitGraph(CostColumns(), width=knobs.encoder_width, rounds=knobs.encoder_rounds)
            self.grouper = Grouper(knobs.encoder_width, knobs.groups, hidden=knobs.hidden)
        self._constants = ProblemConstants(self._of_problem)
        self._best: WeakKeyDictionary[Problem, Int[Tensor, " units"]] = WeakKeyDictionary()

    def reset(self, problem: Problem, samples: int) -> PlacetoState:
        """Raises ValueError where the policy has learned another number of devices."""
        require_devices(problem, self.devices)
        of = self._constants.of(problem, self)
        if problem in self._best:
            of = of._replace(start=self._best[problem].to(of.start.device))
        return PlacetoState(samples, of)

    def _of_problem(self, problem: Problem) -> PlacetoConstants:
        of_ops = units(problem.graph, self.knobs.units)
        facts = unit_facts(problem, of_ops)
        start = torch.full((of_ops.num_units,), fastest_device(problem))
        if self.op_encoder is not None:
            return PlacetoConstants(of_ops, facts, self.op_encoder.constants(problem, of_ops), start, None)
        few = of_ops.num_units <= self.knobs.groups
        group = (
            torch.arange(of_ops.num_units)
            if few
            else torch.from_numpy(within_passes(problem, of_ops, self.knobs.groups))
        )
        used, group = group.unique(return_inverse=True)
        graph = placed_graph(facts, group[None], len(used), self.knobs.sums)
        return PlacetoConstants(of_ops, facts, None, start, graph)

    def continue_from(self, problem: Problem, placement: Placement) -> None:
        """Later episodes of the problem start from this placement, where the knob `start` says so."""
        if self.knobs.start == "best":
            self._best[problem] = torch.from_numpy(
                devices_of_units(problem, units(problem.graph, self.knobs.units), placement)
            )

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        if self.op_encoder is not None:
            self.op_encoder.widen_ranges([self.reset(problem, 1).of.ops for problem in problems])

    def step(
        self, state: PlacetoState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], PlacetoState | None]:
        """The start, then the placement after each visit."""
        state = self._begun(state, choose) if state.graph is None else self._visited(state, choose, feedback)
        graph, device = state.graph, state.device
        assert graph is not None and device is not None
        of_unit = device.gather(1, graph.grouping.repeat_interleave(len(device) // len(graph.grouping), 0))
        placements = unit_placements(
            state.of.units, soft_placement(of_unit, state.of.facts.allowed), self.knobs.schedule
        )
        done = state.turn == min(graph.order.shape[1], state.of.units.num_units)
        return placements, None if done else state

    def _begun(self, state: PlacetoState, choose: Choose) -> PlacetoState:
        """The state with its groups, their order and where they stand at first."""
        graph = state.of.graph
        if graph is None:
            graph = placed_graph(
                state.of.facts, self._group(state, choose, self.knobs.sharpness), self.knobs.groups, self.knobs.sums
            )
        if self.knobs.order == "random":
            graph = shuffled(graph, choose("order", graph.work.new_zeros(len(graph.order), SEEDS)))
        each = state.samples // len(graph.order)
        if self.knobs.start == "random":
            legal = graph.allowed.repeat_interleave(each, 0)
            return state._replace(
                graph=graph, device=choose("start", torch.zeros_like(legal, dtype=torch.float32), legal)
            )
        return state._replace(
            graph=graph, device=standing(graph, state.of.facts, state.of.start).repeat_interleave(each, 0)
        )

    def _visited(self, state: PlacetoState, choose: Choose, feedback: Sequence[StepResult] | None) -> PlacetoState:
        """The state after the visit of the next group."""
        graph, device = state.graph, state.device
        assert graph is not None and device is not None
        current, each = graph.order[:, state.turn], len(device) // len(graph.order)
        began = start_times(graph, state.of.facts, len(device), feedback) if self.knobs.start_time else None
        node = columns(graph, device, state.turn, began, self.knobs.memory)
        logits = visited(self.network, node, graph.relatives, current, visits=graph.order.shape[1]).flatten(0, 1)
        legal = graph.allowed[torch.arange(len(current), device=current.device), current].repeat_interleave(each, 0)
        chosen = choose("device", logits, legal)
        moved = device.scatter(1, current.repeat_interleave(each, 0).unsqueeze(1), chosen.unsqueeze(1))
        return state._replace(device=moved, turn=state.turn + 1)

    def group(self, state: PlacetoState, choose: Choose) -> Int[Tensor, "leading units"]:
        """The first decision alone, from the Grouper's logits as they are."""
        return self._group(state, choose, 1.0)

    def _group(self, state: PlacetoState, choose: Choose, sharpness: float) -> Int[Tensor, "leading units"]:
        assert self.op_encoder is not None and self.grouper is not None
        given = choose.given("group")
        leading = math.gcd(state.samples, self.groupings) if given is None else len(given)
        return choose("group", (sharpness * self.grouper(self.op_encoder(state.of.ops))).expand(leading, -1, -1))

    def grouping_parameters(self) -> Iterator[nn.Parameter]:
        """Those of the op encoder and of the Grouper; none where groups are fixed."""
        for part in (self.op_encoder, self.grouper):
            if part is not None:
                yield from part.parameters()

    def grouping_target(self, problem: Problem) -> Mapping[str, Int[Tensor, "1 units"]]:
        """The clustering of a problem's units as choices of "group". Raises
        ValueError where groups are fixed: they are that already.
        """
        if self.grouper is None:
            raise ValueError(
                "training.grouping.updates: a policy with policy.grouping 'clustered' has no groups to learn; set "
                "it to 0"
            )
        group = within_passes(problem, units(problem.graph, self.knobs.units), self.knobs.groups)
        return {"group": torch.from_numpy(group)[None].to(next(self.parameters()).device)}
