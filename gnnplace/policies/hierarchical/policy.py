"""The hierarchical policy (Mirhoseini et al., ICLR 2018): a Grouper groups units, a Placer places the groups.

`Ungrouped` is its ablation without groups. `config.py` holds the knobs and builds both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.policies.clustering import clustering, groups_within
from gnnplace.policies.encoders.encoder import GroupEncoder, OpEncoder
from gnnplace.policies.hierarchical.grouper import Grouper, Grouping
from gnnplace.policies.placing.base import best_base
from gnnplace.policies.placing.base_search import BaseSearch, Candidates
from gnnplace.policies.placing.group_tables import TablesOfUnits, tables_of_units
from gnnplace.policies.placing.placer import Placer, Seq2Seq
from gnnplace.policies.placing.turns import Turns, by_label, in_turn, place, soft_placement, turns
from gnnplace.policies.protocol import Choose
from gnnplace.policies.states import ProblemConstants, devices_of_units, require_devices, unit_placements
from gnnplace.policies.symmetry import by_first_use
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.paths import decision_order
from gnnplace.units.units import Units, UnitsName, allowed, units, work_ns


class HierarchicalState(NamedTuple):
    """The constants of one problem: a state may be stepped, and re-scored, any number of times."""

    samples: int
    units: Units
    ops: Any  # what the op encoder reads
    groups: Any  # what the group encoder reads
    tables: TablesOfUnits | None  # None where devices have names
    grouping: Any  # what groups are made of (`Grouping.reads`)
    allowed: Bool[Tensor, "units devices"]
    problem: Problem | None = None  # of an episode; what is kept of a problem does not refer to it
    round: int = 0  # rounds that have been placed
    search: BaseSearch = BaseSearch()  # for the base of the first round
    tried: tuple[Placement, ...] = ()  # the placements of the round before


class Rounds(NamedTuple):
    """How often an episode places all groups, and the candidates for the base that it observes."""

    number: int = 1
    candidates: Candidates = Candidates()


ONE_ROUND = Rounds()


class Hierarchical(nn.Module):
    """Groups units, then places groups.

    Reads the embeddings of units (`op_encoder`) and of groups (`group_encoder`). Of devices it reads either their names
    (`Seq2Seq`: weights for one number of devices) or observations while groups are placed (`ObservingPlacer`: any
    number). `op_encoder` is None if nothing reads op embeddings: the paper's group embeddings under a fixed grouping.

    Decides, in one step an episode, "group" (an option a group, for each unit: `Int[groupings units]`) and then
    "device" (an option a device, for each group: `Int[samples groups]`). Sample j places grouping
    `j // (samples / groupings)`. `groupings` is the paper's m; if it does not divide the samples, their greatest common
    divisor takes its place. All ops of a unit share a group: the paper has no colocation constraint and lets the
    runtime move ops.

    Named devices: groups are placed in the order of their labels, as in the paper. Observed devices: groups are placed
    by when their work can start, because observations are those of a list scheduler; empty groups come last and have no
    choice.

    Legality: a group may stand where all its members may. Where they have no device in common, it may stand where any
    of them may, and a member that may not stand there goes to its first allowed device: the paper's soft placement, the
    only decision that is not the policy's. A named empty group may stand anywhere.

    With candidates for a base schedule (`placing.base_search`), the first steps of an episode propose them, and the
    best of them is observed; its placement is none of the policy's, but its order of ops is. From the second of an
    episode's `rounds` on, the best placement so far of all samples is the base.

    Learns from the summed log-probability of both decisions (eqs. 4 and 6). It can imitate a placement (`choices`), and
    its Grouper a clustering (`grouping_target`).
    """

    def __init__(
        self,
        *,
        op_encoder: OpEncoder | None,
        grouper: Grouping,
        group_encoder: GroupEncoder,
        placer: Placer,
        groupings: int = 1,
        rounds: Rounds = ONE_ROUND,
        units: UnitsName = "ops",
        schedule: Schedule = "critical-path",
    ) -> None:
        super().__init__()
        if op_encoder is None and grouper.taught:
            raise ValueError("op_encoder: a learned grouper reads op embeddings, so it needs one")
        self.op_encoder, self.grouper, self.group_encoder, self.placer = op_encoder, grouper, group_encoder, placer
        self.groupings, self.rounds, self.units, self.schedule = groupings, rounds, units, schedule
        if rounds.candidates.number:
            self.feedback, self.looks = "timeline", rounds.candidates.looks
        if rounds.number > 1:
            self.evaluates = "every"
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> HierarchicalState:
        """Raises ValueError if the Placer has learned another number of devices."""
        if isinstance(self.placer, Seq2Seq):
            require_devices(problem, self.placer.devices)
        return self._constants.of(problem, self)._replace(samples=samples, problem=problem)

    def _state(self, problem: Problem) -> HierarchicalState:
        grouped = units(problem.graph, self.units)
        ops = None if self.op_encoder is None else self.op_encoder.constants(problem, grouped)
        groups = self.group_encoder.constants(problem, grouped)
        tables = None if isinstance(self.placer, Seq2Seq) else tables_of_units(problem, grouped)
        may = torch.from_numpy(allowed(problem, grouped))
        return HierarchicalState(1, grouped, ops, groups, tables, self.grouper.reads(problem, grouped, None), may)

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        states = [self.reset(problem, 1) for problem in problems]
        if self.op_encoder is not None:
            self.op_encoder.widen_ranges([state.ops for state in states])
        self.group_encoder.widen_ranges([state.groups for state in states])

    def step(
        self, state: HierarchicalState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], HierarchicalState | None]:
        """One placement for each sample. If a base is observed, first steps propose its candidates."""
        if self.rounds.candidates.number and not state.round:
            state = self._heard(state, feedback)
            if state.search.looks < self.rounds.candidates.looks:
                return self._look(state)
            state = self._first_base(state)
        elif state.tried:
            state = self._with_base(state, state.tried, feedback)
        placements = self._placed(state, choose)
        round_ = state.round + 1
        return placements, None if round_ == self.rounds.number else state._replace(round=round_, tried=placements)

    def _placed(self, state: HierarchicalState, choose: Choose) -> tuple[Placement, ...]:
        """All decisions of a round."""
        embeddings = self._embeddings(state)
        grouping, inner = self.grouper.group(state.grouping, embeddings, choose, self._groupings(state))
        queue = self._turns(state, grouping)
        embedded = self.group_encoder(state.groups, grouping, self._read(embeddings))
        groups = in_turn(embedded if inner is None else embedded * inner, queue.order)
        of_group = by_label(place(self.placer, self.placer.encode(groups), queue, state.samples, choose), queue.order)
        device = of_group.gather(1, grouping.repeat_interleave(state.samples // len(grouping), 0))
        base = None if state.tables is None else state.tables.base
        schedule = self.schedule if base is None else base.schedule
        return unit_placements(state.units, soft_placement(device, state.allowed), schedule)

    def _look(self, state: HierarchicalState) -> tuple[tuple[Placement, ...], HierarchicalState]:
        """The next candidates for the base of the first round; none if it is kept for the problem."""
        assert state.problem is not None and state.tables is not None
        if state.tables.base is not None:
            return (), state._replace(search=state.search.skipped())
        search = state.search.next(state.problem, state.units, self.rounds.candidates, self.schedule)
        return tuple(start.placement for start in search.waiting), state._replace(search=search)

    def _heard(self, state: HierarchicalState, feedback: Sequence[StepResult] | None) -> HierarchicalState:
        """The state after the results of a look."""
        if not state.search.waiting:
            return state
        assert state.problem is not None
        return state._replace(search=state.search.heard(state.problem, _read(feedback)))

    def _first_base(self, state: HierarchicalState) -> HierarchicalState:
        """The state with the best of all candidates as the base, which is kept for the problem."""
        best = state.search.best
        if best is None:
            return state
        informed = self._with_base(state._replace(search=BaseSearch()), [best.placement], [best.result])
        assert state.problem is not None
        self._constants.keep(state.problem, informed._replace(samples=1, problem=None))
        return informed

    def _with_base(
        self, state: HierarchicalState, tried: Sequence[Placement], feedback: Sequence[StepResult] | None
    ) -> HierarchicalState:
        """The state with the best of some placements as the base, if it is better than the one before."""
        assert state.problem is not None and state.tables is not None
        before = state.tables.base
        base = best_base(state.problem, state.units, tried, _read(feedback), before)
        if base is before:
            return state
        informed = state._replace(tables=state.tables._replace(base=base))
        if self.grouper.scheduled:
            return informed._replace(grouping=self.grouper.reads(state.problem, state.units, base))
        return informed

    def group(self, state: HierarchicalState, choose: Choose) -> Int[Tensor, "leading units"]:
        """The first decision alone, from the Grouper's logits as they are; of parsed groups which edges are kept."""
        embeddings = self._embeddings(state)
        assert embeddings is not None
        return self.grouper.decide(state.grouping, embeddings, choose, self._groupings(state))

    @property
    def learns_groups(self) -> bool:
        """Whether groups are a Grouper's."""
        return self.grouper.learns

    @property
    def teaches_groups(self) -> bool:
        """Whether groups are of weights, which a clustering can teach."""
        return self.grouper.taught

    def grouping_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the op encoder and of the Grouper."""
        for part in (self.op_encoder, self.grouper):
            if isinstance(part, nn.Module):
                yield from part.parameters()

    def _embeddings(self, state: HierarchicalState) -> Float[Tensor, "units width"] | None:
        return None if self.op_encoder is None else self.op_encoder(state.ops)

    def _read(self, embeddings: Float[Tensor, "units width"] | None) -> Float[Tensor, "units width"] | None:
        """The op embeddings that groups are embedded from.

        No gradient passes from the Placer through a learned grouping to the input of the Grouper.
        """
        return embeddings.detach() if embeddings is not None and self.grouper.learns else embeddings

    def _turns(self, state: HierarchicalState, grouping: Int[Tensor, "leading units"]) -> Turns:
        return turns(state.tables, grouping, state.allowed, self.grouper.options, state.samples)

    def _groupings(self, state: HierarchicalState) -> int:
        return math.gcd(state.samples, self.groupings)

    def grouping_target(self, problem: Problem) -> Mapping[str, Int[Tensor, "1 questions"]]:
        """The clustering of a problem's units (`clustering.py`) as choices of groups, or of the edges that it keeps.

        None where groups are fixed.
        """
        if not self.grouper.taught:
            return {}
        state = self.reset(problem, 1)
        group = torch.from_numpy(clustering(problem, state.units, self.grouper.options)).to(state.allowed.device)
        return self.grouper.target(state.grouping, group)

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Tensor]:
        """Groups that cut each device's units by its share of the work, and each group's device.

        Interchangeable devices are named by first use.

        A group whose members stand on several devices, as fixed ones do, is put where most of their work stands.
        """
        state = self.reset(problem, 1)
        if state.grouping is None:
            raise ValueError("policy.grouper: groups within the devices of a base are unknown before its step")
        order = decision_order(problem, state.units)
        device = np.empty(len(order), np.int64)
        device[order] = by_first_use(problem, devices_of_units(problem, state.units, placement)[order])
        fixed = self.grouper.fixed(state.grouping)
        within = groups_within(problem, state.units, device, self.grouper.options) if fixed is None else fixed[0].cpu()
        group = np.asarray(within)
        work = np.zeros((self.grouper.options, problem.num_devices))
        np.add.at(work, (group, device), work_ns(problem, state.units).min(axis=1))
        grouping = torch.from_numpy(group)[None].to(state.allowed.device)
        queue = self._turns(state, grouping)
        work_of_turn = in_turn(torch.from_numpy(work)[None].to(grouping.device), queue.order)
        chosen = {"device": work_of_turn.masked_fill(~queue.allowed, -1.0).argmax(-1)}
        return chosen | ({"group": grouping} if fixed is None else {})


def _read(feedback: Sequence[StepResult] | None) -> Sequence[StepResult]:
    """Raises ValueError if nothing was evaluated."""
    if not feedback:
        raise ValueError("policy.bases: a base is observed, so this policy needs an evaluator")
    return feedback


class UngroupedState(NamedTuple):
    """The constants of one problem."""

    samples: int
    units: Units
    ops: Any
    allowed: Bool[Tensor, "units devices"]


class Ungrouped(nn.Module):
    """The ablation without grouping: the Grouper's network chooses the device of each unit directly.

    Mirhoseini et al. (ICLR 2018, section 4, "simple planner") found no valid placement of their larger graphs with it.
    It is `hierarchical` with `grouper: none`.

    Reads the embeddings of units. Decides, in one step an episode, "device": an option a device, for each unit,
    `Int[samples units]`, among the devices where all its ops may stand. Learns from the summed log-probability of its
    decisions. `network` has an option for each device, so its weights are for one number of devices.
    """

    def __init__(
        self, *, op_encoder: OpEncoder, network: Grouper, units: UnitsName = "ops", schedule: Schedule = "critical-path"
    ) -> None:
        super().__init__()
        self.op_encoder, self.network, self.units, self.schedule = op_encoder, network, units, schedule
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> UngroupedState:
        """Raises ValueError if the network has learned another number of devices."""
        require_devices(problem, self.network.options)
        return self._constants.of(problem, self)._replace(samples=samples)

    def _state(self, problem: Problem) -> UngroupedState:
        of_ops = units(problem.graph, self.units)
        return UngroupedState(
            1, of_ops, self.op_encoder.constants(problem, of_ops), torch.from_numpy(allowed(problem, of_ops))
        )

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        self.op_encoder.widen_ranges([self.reset(problem, 1).ops for problem in problems])

    def step(
        self, state: UngroupedState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], UngroupedState | None]:
        """The whole episode: one placement for each sample."""
        logits = self.network(self.op_encoder(state.ops))
        device = choose("device", logits.expand(state.samples, -1, -1), state.allowed)
        return unit_placements(state.units, device, self.schedule), None
