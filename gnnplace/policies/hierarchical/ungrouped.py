"""The ablation without grouping: the Grouper's network gives each op its device directly.

Mirhoseini et al. (ICLR 2018, section 4, "simple planner"): it found no valid placement of their larger graphs.
It is no policy of its own but `hierarchical` with `grouper: none`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.encoder import OpEncoder
from gnnplace.policies.hierarchical.grouper import Grouper
from gnnplace.policies.protocol import Choose
from gnnplace.policies.states import ProblemConstants, require_devices, unit_placements
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.units import Units, UnitsName, allowed, units


class UngroupedState(NamedTuple):
    """The constants of one problem."""

    samples: int
    units: Units
    ops: Any
    allowed: Bool[Tensor, "units devices"]


class Ungrouped(nn.Module):
    """Places every unit independently of the others.

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
        """Raises ValueError where the network has learned another number of devices."""
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
        """All of an episode: one placement for each sample."""
        logits = self.network(self.op_encoder(state.ops))
        device = choose("device", logits.expand(state.samples, -1, -1), state.allowed)
        return unit_placements(state.units, device, self.schedule), None
