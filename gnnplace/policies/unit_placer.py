"""Our placer: units one after another, each device scored by what a GNN says of the unit and what is observed of the device.

The Placer of Mirhoseini et al. (2018) emits one device per group from a softmax over device names; this one keeps the
autoregressive decision and replaces names by observations (load, free memory, links, bytes shared with what stands
there), so that equal devices are told apart, any number of devices works, and weights transfer between clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.gnn import GNNEncoder
from gnnplace.policies.features import EDGE_FEATURES, NODE_FEATURES, GraphFeatures, features
from gnnplace.policies.networks.scorer import DeviceScorer
from gnnplace.policies.observations import OBSERVATIONS, STATIC, PartialPlacements, UnitTables
from gnnplace.policies.protocol import Choose
from gnnplace.policies.states import beside
from gnnplace.policies.unit_tables import unit_tables
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.unit_order import decision_order
from gnnplace.units.units import Units, UnitsName, allowed, expand, units

Constants = tuple[Units, Int64[np.ndarray, " units"], UnitTables, GraphFeatures, Bool[Tensor, "units devices"]]


class Episode(NamedTuple):
    """The constants of one problem: its units in decision order, and what the networks read of them."""

    problem: Problem
    samples: int
    units: Units
    order: Int64[np.ndarray, " units"]
    tables: UnitTables
    features: GraphFeatures
    allowed: Bool[Tensor, "units devices"]


class UnitPlacer(nn.Module):
    """Places the units of a problem in order of their time in the step; one question, `device`, a unit."""

    seen: Tensor

    def __init__(
        self,
        *,
        units: UnitsName = "coarse",
        width: int = 64,
        rounds: int = 3,
        hidden: int = 32,
        message_passing: bool = True,
        state_features: bool = True,
        schedule: Schedule = "critical-path",
    ) -> None:
        super().__init__()
        self.units_name, self.schedule = units, schedule
        self.encoder = GNNEncoder(NODE_FEATURES, EDGE_FEATURES, width=width, rounds=rounds if message_passing else 0)
        self.scorer = DeviceScorer(width, len(OBSERVATIONS), hidden)
        seen = torch.tensor([state_features or name in STATIC for name in OBSERVATIONS])
        self.register_buffer("seen", seen.float(), persistent=False)
        self._episodes: WeakKeyDictionary[Problem, Constants] = WeakKeyDictionary()

    def reset(self, problem: Problem, samples: int) -> Episode:
        """The constants of a problem; they are kept as long as the problem lives, since updates repeat it."""
        if problem not in self._episodes:
            self._episodes[problem] = _constants(problem, self.units_name)
        self._episodes[problem] = beside(self, self._episodes[problem])
        return Episode(problem, samples, *self._episodes[problem])

    def keep_ranges(self, problems: Sequence[Problem]) -> None:
        self.encoder.keep_ranges([self.reset(problem, 1).features for problem in problems])

    def step(self, state: Episode, choose: Choose, feedback: Sequence[StepResult] | None) -> tuple[tuple[Placement, ...], None]:
        embedding = self.encoder(*state.features)[torch.from_numpy(state.order).to(self.seen.device)]
        terms = self.scorer.unit_term(embedding)
        given = choose.given("device")
        device = self._place(state, terms, choose) if given is None else self._rescore(state, terms, choose, given)
        by_unit = np.empty_like(device)
        by_unit[:, state.order] = device
        rows = expand(state.units, by_unit.astype(np.int32))
        return tuple(Placement(row, self.schedule) for row in rows), None

    def _place(self, state: Episode, terms: Float[Tensor, "units hidden"], choose: Choose) -> Int64[np.ndarray, "samples units"]:
        partial = PartialPlacements(state.tables, state.samples)
        for step, legal in enumerate(state.allowed):
            observed = torch.from_numpy(partial.observe()).to(self.seen.device) * self.seen
            logits = self.scorer(terms[step], observed)
            partial.place(choose("device", logits, legal).cpu().numpy())
        return partial.device

    def _rescore(
        self, state: Episode, terms: Float[Tensor, "units hidden"], choose: Choose, given: Int[Tensor, "samples *steps"]
    ) -> Int64[np.ndarray, "samples units"]:
        """All decisions of known placements in one pass."""
        given = given.reshape(len(given), -1)  # a single unit's choices come without an axis of units
        observed = torch.from_numpy(PartialPlacements(state.tables, len(given)).replay(given.cpu().numpy())).to(self.seen.device)
        return choose("device", self.scorer(terms, observed * self.seen), state.allowed).cpu().numpy()

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 units"]]:
        """The device on which most of each unit's work stands; equal devices are renamed by their first use."""
        state = self.reset(problem, 1)
        work = np.zeros((state.units.num_units, problem.num_devices))
        np.add.at(work, (state.units.unit, placement.device), problem.time_ns.min(axis=1))
        device = np.where(state.allowed.cpu().numpy(), work[state.order], -1.0).argmax(axis=1)
        return {"device": torch.from_numpy(_by_first_use(problem, device))[None].to(self.seen.device)}


def _constants(problem: Problem, units_name: UnitsName) -> Constants:
    made = units(problem.graph, units_name)
    order = decision_order(problem, made)
    tables = unit_tables(problem, made, order)
    return made, order, tables, features(problem, made), torch.from_numpy(allowed(problem, made)[order])


def _by_first_use(problem: Problem, device: Int64[np.ndarray, " units"]) -> Int64[np.ndarray, " units"]:
    """Devices of the same kind and sizes are interchangeable: name them in the order in which they are used."""
    alike = [(d.kind, d.memory_bytes, str(d.flops_per_s), d.memory_bytes_per_s, d.streams) for d in problem.cluster.devices]
    used = list(dict.fromkeys(device.tolist()))
    rename = np.arange(problem.num_devices)
    for kind in dict.fromkeys(alike):
        members = [d for d in range(problem.num_devices) if alike[d] == kind]
        by_use = [d for d in used if d in members] + [d for d in members if d not in used]
        rename[by_use] = members
    return rename[device]
