"""The paper's ablation without grouping: the Grouper's network gives each op its device directly, ops independently.

Mirhoseini et al. (ICLR 2018), the "simple planner" of the grouping ablations: it found no valid placement of the larger graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.policies.hierarchical import OpEncoder
from gnnplace.policies.networks.grouper import Grouper
from gnnplace.policies.protocol import Choose
from gnnplace.policies.states import beside, unit_placements
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.units import Units, UnitsName, allowed, units


class UngroupedState(NamedTuple):
    """The constants of one problem."""

    samples: int
    units: Units
    ops: Any
    allowed: Bool[Tensor, "units devices"]


class UngroupedPlanner(nn.Module):
    """One choice, "device": of every unit, on a device that is allowed for it. `network` has an option for each device."""

    def __init__(self, *, op_encoder: OpEncoder, network: Grouper, units: UnitsName = "ops", schedule: Schedule = "critical-path") -> None:
        super().__init__()
        self.op_encoder, self.network, self.units, self.schedule = op_encoder, network, units, schedule
        self._states: WeakKeyDictionary[Problem, UngroupedState] = WeakKeyDictionary()  # updates repeat their problems

    def reset(self, problem: Problem, samples: int) -> UngroupedState:
        """Raises ValueError where the network has learned another number of devices."""
        if problem.num_devices != self.network.options:
            raise ValueError(f"{problem.cluster.name}: {problem.num_devices} devices, but this policy places on {self.network.options}")
        if problem not in self._states:
            of_ops = units(problem.graph, self.units)
            legal = torch.from_numpy(allowed(problem, of_ops))
            self._states[problem] = UngroupedState(1, of_ops, self.op_encoder.constants(problem, of_ops), legal)
        self._states[problem] = beside(self, self._states[problem])
        return self._states[problem]._replace(samples=samples)

    def keep_ranges(self, problems: Sequence[Problem]) -> None:
        self.op_encoder.keep_ranges([self.reset(problem, 1).ops for problem in problems])

    def step(
        self, state: UngroupedState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], UngroupedState | None]:
        """All of an episode: one placement for each sample."""
        logits = self.network(self.op_encoder(state.ops))
        device = choose("device", logits.expand(state.samples, -1, -1), state.allowed)
        return unit_placements(state.units, device, self.schedule), None
