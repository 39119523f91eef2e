"""The Hierarchical Planner (Mirhoseini et al., ICLR 2018): a Grouper puts ops into groups, a Placer gives each group a device.

One episode is one step: embed the ops, group them, embed the groups, place them. The choices are "group"
(`groupings` rows, one option a group, for each unit) and "device" (a row a sample, for each group in order); sample j places
grouping j // k. Both networks learn from the log-probabilities of what was measured; no gradient passes through the grouping.

Units: ops of one colocation group share a group (the paper has no such constraint and lets the runtime move ops).
Legality: a group may stand where all its members may, even if it is empty. Where its members have no device in common,
it may stand where any of them may, and members that may not stand there go to their first allowed device: the paper's
soft placement, and the only decision that is not the policy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.groups import sum_by_group
from gnnplace.policies.networks.grouper import Grouper, RandomGrouping
from gnnplace.policies.networks.seq2seq import Encoded, Seq2Seq
from gnnplace.policies.protocol import Choose
from gnnplace.policies.states import beside, unit_placements
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.units import Units, UnitsName, allowed, units


@runtime_checkable
class OpEncoder(Protocol):
    """Embeds units: `constants` once a problem, then the embeddings under the weights of the day.

    `keep_ranges` is shown the constants of all training problems before it learns.
    """

    width: int

    def constants(self, problem: Problem, units: Units) -> Any: ...

    def keep_ranges(self, constants: Sequence[Any]) -> None: ...

    def __call__(self, constants: Any) -> Float[Tensor, "units width"]: ...


@runtime_checkable
class GroupEncoder(Protocol):
    """Embeds the groups of each grouping, from constants of the problem and from its members' embeddings where it reads them."""

    width: int

    def constants(self, problem: Problem, units: Units) -> Any: ...

    def __call__(
        self, constants: Any, grouping: Int[Tensor, "leading units"], members: Float[Tensor, "units ops_width"] | None
    ) -> Float[Tensor, "leading groups width"]: ...


class HierarchicalState(NamedTuple):
    """The constants of one problem: a state may be stepped, and re-scored, any number of times."""

    samples: int
    units: Units
    ops: Any
    groups: Any
    allowed: Bool[Tensor, "units devices"]


class HierarchicalPlanner(nn.Module):
    """Groups units, then places groups. `groupings` (the paper's m) divides the samples; a single sample has one grouping.

    `op_encoder` is None where nothing reads op embeddings: the paper's group embeddings under a random grouping.
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
        self._states: WeakKeyDictionary[Problem, HierarchicalState] = WeakKeyDictionary()  # updates repeat their problems

    def reset(self, problem: Problem, samples: int) -> HierarchicalState:
        """Raises ValueError where the Placer has learned another number of devices, or `groupings` does not divide `samples`."""
        if problem.num_devices != self.placer.devices:
            raise ValueError(f"{problem.cluster.name}: {problem.num_devices} devices, but this policy places on {self.placer.devices}")
        if samples > 1 and samples % self.groupings:
            raise ValueError(f"samples: {samples} is not a multiple of the {self.groupings} groupings")
        if problem not in self._states:
            self._states[problem] = self._constants(problem)
        self._states[problem] = beside(self, self._states[problem])
        return self._states[problem]._replace(samples=samples)

    def _constants(self, problem: Problem) -> HierarchicalState:
        of_ops = units(problem.graph, self.units)
        ops = None if self.op_encoder is None else self.op_encoder.constants(problem, of_ops)
        groups = self.group_encoder.constants(problem, of_ops)
        return HierarchicalState(1, of_ops, ops, groups, torch.from_numpy(allowed(problem, of_ops)))

    def keep_ranges(self, problems: Sequence[Problem]) -> None:
        if self.op_encoder is not None:
            self.op_encoder.keep_ranges([self.reset(problem, 1).ops for problem in problems])

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
