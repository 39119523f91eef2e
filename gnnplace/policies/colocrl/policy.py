"""ColocRL (Mirhoseini et al., "Device Placement Optimization with Reinforcement Learning", ICML 2017).

Rules put ops into colocation groups (arXiv 1706.04972, section 3.3). A sequence-to-sequence network reads the groups
and writes a device for each (section 3.2). It learns by REINFORCE from the square root of the step time, over a moving
average (section 3.1). One policy is for one graph.

An op is embedded by a tunable embedding of its type, the zero-padded list of its output shapes, and a one-hot vector of
its neighbours (section 3.2). What the paper leaves open, decided here:

- *Groups*: a group is embedded as an op would be. Its type and its shapes are the means of its members', its neighbours
  the other groups that an edge joins with a member. The direction of edges does not enter; control edges count, as in
  the authors' code (`encoders/paper.py`).
- *Sizes*: a type has 20 numbers, shapes 6 outputs x 4 dimensions and the number of outputs, as in the authors' next
  paper (ICLR 2018). Types are the 200 most frequent of the training graph; all others share one more.
- *Scale*: each column of shapes is standardised over groups. Raw sizes would drown all else.
- *Training*: widths, learning rate and clipping are those of the authors' next paper. The LSTMs are single layers that
  read forwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.knobs import MOST_LAYERS, MOST_WIDTH, at_least, between
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.clustering import clustering
from gnnplace.policies.encoders.encoder import ENCODERS, EncoderName, OpEncoder, encoder_of
from gnnplace.policies.encoders.groups import edges_between
from gnnplace.policies.encoders.kinds import Vocabulary, vocabulary
from gnnplace.policies.encoders.paper import KIND_WIDTH, SHAPE_WIDTH, member_sums, standardised
from gnnplace.policies.placing.placer import Seq2Seq
from gnnplace.policies.placing.turns import Turns, place
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import ProblemConstants, devices_of_units, named_devices, require_devices, unit_placements
from gnnplace.policies.symmetry import by_first_use
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.cells import legality
from gnnplace.units.numbers import row_numbers
from gnnplace.units.units import Units, UnitsName, allowed, numbered, units


class ColocationConstants(NamedTuple):
    """The type shares of each group's members, their mean shapes (standardised), and 1 for each neighbour."""

    types: Float[Tensor, "groups kinds"]
    shapes: Float[Tensor, "groups shapes"]
    adjacency: Float[Tensor, "groups columns"]


class ColocationGroups(nn.Module):
    """Embeddings of 20 (type) + 25 (output shapes) + a column for each of `groups` groups (adjacency)."""

    def __init__(self, kinds: Vocabulary, groups: int) -> None:
        super().__init__()
        self.kinds, self.groups = kinds, groups
        self.kind = nn.Embedding(kinds.size, KIND_WIDTH)
        self.width = KIND_WIDTH + SHAPE_WIDTH + groups

    def constants(self, problem: Problem, units: Units) -> ColocationConstants:
        """Raises ValueError if the problem has more groups than there are columns."""
        if units.num_units > self.groups:
            raise ValueError(
                f"{problem.graph.name}: {units.num_units} colocation groups, but this policy has learned {self.groups}"
            )
        size = torch.from_numpy(np.bincount(units.unit).astype(np.float32))
        means = member_sums(problem.graph, units, self.kinds) / size.unsqueeze(1)
        types, shapes = means.split([self.kinds.size, SHAPE_WIDTH], dim=1)
        edges = edges_between(problem, units)
        adjacency = torch.zeros(units.num_units, self.groups)
        adjacency[edges.flatten(), edges.flip(0).flatten()] = 1.0
        return ColocationConstants(types, torch.from_numpy(standardised(shapes.numpy())), adjacency)

    def widen_ranges(self, constants: Sequence[ColocationConstants]) -> None:
        """Nothing: a policy with these columns is for one graph."""

    def forward(self, constants: ColocationConstants) -> Float[Tensor, "groups width"]:
        return torch.cat([constants.types @ self.kind.weight, constants.shapes, constants.adjacency], dim=-1)


Colocation = UnitsName | Literal["metis"]


@dataclass(frozen=True)
class ColocRLConfig(PolicyConfig):
    """ColocRL (Mirhoseini et al., ICML 2017): a sequence-to-sequence network places colocation groups.

    Args:
        kind: names this policy
        units: what is placed together: "colocated" = the paper's rules; ablations: "readers" = without groups named by
            layer and time step, "ops" = the framework's constraints alone, "coarse" and "weights" = this project's,
            "metis" = as many parts as "colocated" has
        encoder: what embeds groups; "paper" = types, shapes and a column for each group; "gnn" = costs and messages,
            for any graph
        encoder_width: width of the GNN's embeddings
        encoder_rounds: the GNN's rounds of message passing
        width: width of the LSTMs, of the attention and of the embeddings of devices
        bidirectional: whether the encoder reads the groups backwards, too
        bound: C of the logits C tanh(l / C); 0 = l itself, as in the paper
        schedule: how ops are ordered within devices
    """

    kind: Literal["colocrl"] = "colocrl"
    units: Colocation = "colocated"
    encoder: EncoderName = "paper"
    encoder_width: int = 64
    encoder_rounds: int = 3
    width: int = 256
    bidirectional: bool = False
    bound: float = 0.0
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", encoder_width=self.encoder_width, width=self.width)
        between(0, MOST_LAYERS, "policy.", encoder_rounds=self.encoder_rounds)
        at_least(0, "policy.", bound=self.bound)
        self.require_rule()

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        return ENCODERS

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """Named devices; with the paper's encoder also own kinds, and a column for each group of the largest graph.

        Raises ValueError if numbers of devices differ.
        """
        if self.encoder == "gnn":
            return PolicyShape(named_devices(problems, self.kind))
        words = vocabulary([problem.graph for problem in problems]).words
        groups = max(colocation(problem, self.units).num_units for problem in problems)
        return PolicyShape(named_devices(problems, self.kind), words, groups)

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> ColocRL:
        def paper() -> OpEncoder:
            return ColocationGroups(Vocabulary(shape.kinds), shape.groups)

        encoder = encoder_of(self.encoder, paper, width=self.encoder_width, rounds=self.encoder_rounds)
        placer = Seq2Seq(
            encoder.width,
            shape.devices,
            width=self.width,
            bound=self.bound,
            temperature=self.bound,
            bidirectional=self.bidirectional,
        )
        return ColocRL(encoder, placer, self.units, self.schedule)


def colocation(problem: Problem, name: Colocation) -> Units:
    """The colocation groups of a problem under a rule, numbered by their first ops in topological order.

    METIS makes parts of equal work that cut cheap transfers. Parts whose ops have different allowed devices are split.
    """
    graph = problem.graph
    if name != "metis":
        return units(graph, name)
    ops = units(graph, "ops")
    part = clustering(problem, ops, units(graph, "colocated").num_units)[ops.unit]
    return numbered(graph, name, row_numbers(np.stack([part, legality(graph, ops.unit.astype(np.int64))], axis=1)))


class ColocRLState(NamedTuple):
    """The constants of one problem; `turns` is the order of groups and where each may stand."""

    samples: int
    units: Units
    groups: Any
    turns: Turns


class ColocRL(nn.Module):
    """Places colocation groups, one after another in the topological order of their first ops.

    Reads of each group what `encoder` makes of it, `Float[groups width]`: its type, its output shapes and its
    neighbours (`ColocationGroups`, with a column for each group, so that its weights are for one graph), or costs and
    messages (`UnitGraph`, for any graph). And of devices their names (`Seq2Seq`: weights for one number of devices).

    Decides, in one step an episode, "device": one question a group, `Int[samples]`, among the devices where all its ops
    may stand. When its decisions are replayed it asks all of them at once, `Int[samples groups]`. The decoder reads the
    device chosen before.

    Learns from the summed log-probability of its decisions; it can imitate a placement (`choices`).
    """

    def __init__(
        self,
        encoder: OpEncoder,
        placer: Seq2Seq,
        colocated_by: Colocation = "colocated",
        schedule: Schedule = "critical-path",
    ) -> None:
        super().__init__()
        self.encoder, self.placer, self.colocated_by, self.schedule = encoder, placer, colocated_by, schedule
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> ColocRLState:
        """Raises ValueError if the policy has learned another number of devices, or fewer groups."""
        require_devices(problem, self.placer.devices)
        return self._constants.of(problem, self)._replace(samples=samples)

    def _state(self, problem: Problem) -> ColocRLState:
        groups = colocation(problem, self.colocated_by)
        turns = Turns(torch.arange(groups.num_units)[None], torch.from_numpy(allowed(problem, groups))[None], None)
        return ColocRLState(1, groups, self.encoder.constants(problem, groups), turns)

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        self.encoder.widen_ranges([self.reset(problem, 1).groups for problem in problems])

    def step(
        self, state: ColocRLState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], ColocRLState | None]:
        """The whole episode: one placement for each sample."""
        encoded = self.placer.encode(self.encoder(state.groups)[None])
        device = place(self.placer, encoded, state.turns, state.samples, choose)
        return unit_placements(state.units, device, self.schedule), None

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 groups"]]:
        """The device with most of each group's work; interchangeable devices are renamed by first use."""
        state = self.reset(problem, 1)
        device = by_first_use(problem, devices_of_units(problem, state.units, placement))
        return {"device": torch.from_numpy(device)[None].to(state.turns.order.device)}
