"""HSDAG (Duan et al., NeurIPS 2024): placement by a graph parsing network.

The paper is "A Structure-Aware Framework for Learning Device Placements on Computation Graphs".

Co-location sets of ops are the nodes of a coarse graph (appendix G, `parsing.py`). A graph parsing network groups them
by learned edge scores and gives each group a device (section 2.4, `parsing.py`). The embedding of its group is added to
each node's columns, and with these the next step groups and places anew: Z_v <- Z_v + Z_v' (section 2.5). An episode is
`steps` such steps, each of which is evaluated; the policy learns once from all of them.

Where paper and public code differ, both are knobs: `coarsening`, `features`, and `training.credit.returns` for the
credit of a step. Decided here:

- *Levels of parsing*: one, as the paper describes it; the code's loop leaves one group of every connected graph.
- *One device alone* is a placement like any other. The code gives it the time of one that fails.
- *The state* that a step leaves has no gradient: the steps that follow do not teach the ones before.
- *Dropout*: its zeroes are a decision that the tape keeps, so the update scores the measured samples. The greedy
  placement has none.
- *Groups* are a decision without chance, kept by the tape as well: a second pass over the same samples (PPO,
  self-imitation) scores their devices in the measured groups, which the new weights would no longer make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from gnnplace.knobs import MOST_LAYERS, MOST_OF_A_STEP, MOST_WIDTH, between, fraction
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.encoders.encoder import ENCODERS, EncoderName, OpEncoder, encoder_of
from gnnplace.policies.encoders.kinds import Vocabulary, vocabulary
from gnnplace.policies.hsdag.columns import FeatureSet, NodeColumns
from gnnplace.policies.hsdag.parsing import Coarsening, Dropout, GraphParsing, co_located
from gnnplace.policies.placing.turns import group_allowed, soft_placement
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import ProblemConstants, named_devices, require_devices, unit_placements
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.units.units import Units, UnitsName, allowed, unit_edges, units

ZEROES = 2**10  # numbers of dropout's zeroes


@dataclass(frozen=True)
class HsdagConfig(PolicyConfig):
    """HSDAG (Duan et al., NeurIPS 2024): a graph parsing network groups, places, and refines both over an episode.

    Args:
        kind: names this policy
        coarsening: what makes co-location sets; "paper" = an only consumer joins its only producer, "code" = any
            consumer its only producer
        encoder: what embeds nodes; "paper" = the columns of `features`; "gnn" = costs and messages
        encoder_width: width of the GNN's embeddings
        encoder_rounds: the GNN's rounds of message passing
        features: the paper's columns: "paper" = kinds, degrees, fractal dimension, shape, position; "code" = kinds and
            position
        levels: how often groups are grouped again; 1 = as in the paper
        steps: of an episode, each an evaluated placement ("update_timestep")
        width: of the network's layers
        rounds: graph convolutions before edges are scored
        dropout: share of hidden numbers that a sample is made without, in [0, 1)
        units: what co-location sets are made of
        schedule: how ops are ordered within devices
    """

    kind: Literal["hsdag"] = "hsdag"
    coarsening: Coarsening = "paper"
    encoder: EncoderName = "paper"
    encoder_width: int = 64
    encoder_rounds: int = 3
    features: FeatureSet = "paper"
    levels: int = 1
    steps: int = 20
    width: int = 128
    rounds: int = 2
    dropout: float = 0.0
    units: UnitsName = "ops"
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", width=self.width, encoder_width=self.encoder_width)
        between(1, MOST_OF_A_STEP, "policy.", steps=self.steps)
        between(1, MOST_LAYERS, "policy.", levels=self.levels, rounds=self.rounds)
        between(0, MOST_LAYERS, "policy.", encoder_rounds=self.encoder_rounds)
        fraction("policy.", dropout=self.dropout)
        self.require_rule()

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        return ENCODERS

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """Named devices, and own kinds where the paper's encoder reads them.

        Raises ValueError if numbers of devices differ.
        """
        words = vocabulary([problem.graph for problem in problems]).words if self.encoder == "paper" else ()
        return PolicyShape(named_devices(problems, self.kind), words)

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> Hsdag:
        def paper() -> OpEncoder:
            return NodeColumns(Vocabulary(shape.kinds), self.features)

        encoder = encoder_of(self.encoder, paper, width=self.encoder_width, rounds=self.encoder_rounds)
        network = GraphParsing(encoder.width, shape.devices, width=self.width, rounds=self.rounds, levels=self.levels)
        return Hsdag(self, encoder, network, shape.devices)


class HsdagState(NamedTuple):
    """The state of an episode: the embeddings that steps added to the columns, the steps left, and constants."""

    samples: int
    left: int
    constants: Any
    added: Float[Tensor, "nodes columns"] | None
    edges: Int64[Tensor, "2 edges"]
    nodes: Units
    allowed: Bool[Tensor, "nodes devices"]


class Hsdag(nn.Module):
    """Groups the nodes of a coarse graph and places the groups, again and again.

    Reads the columns that `encoder` makes of nodes (`columns.py`, or a GNN's): at first those of the graph, then with
    those of their groups added, step by step. It reads no result. All samples of a step share its groups.

    Decides, in each of `steps` steps, "edges of level l" (for each edge of the coarse graph whether it is kept,
    `Int[1 edges]`, which the weights determine: its log-probability is 0) and "device": an option a device, for each
    group, `Int[samples groups]`. With dropout also "zeroes", which ones, uniformly, `Int[1]`; 0 is none.

    Legality is that of `Hierarchical`: a group may stand where all its members may. Where they have no device in
    common, it may stand where any of them may, and a member that may not stand there goes to its first allowed device.

    Learns from the summed log-probability of its decisions, and every step has a reward. `network` has an option for
    each device, so its weights are for one number of devices, and with the paper's columns for the kinds of the
    training graphs.
    """

    evaluates: ClassVar[str] = "every"

    def __init__(self, knobs: HsdagConfig, encoder: OpEncoder, network: GraphParsing, devices: int) -> None:
        super().__init__()
        self.knobs, self.encoder, self.network, self.devices = knobs, encoder, network, devices
        self._constants = ProblemConstants(self._state)

    def reset(self, problem: Problem, samples: int) -> HsdagState:
        """Raises ValueError if the network has learned another number of devices."""
        require_devices(problem, self.devices)
        return self._constants.of(problem, self)._replace(samples=samples)

    def _state(self, problem: Problem) -> HsdagState:
        """Graph construction and features (sections 2.2 and 2.3)."""
        nodes = co_located(problem, units(problem.graph, self.knobs.units), self.knobs.coarsening)
        sent = unit_edges(problem.graph, nodes)
        edges = np.stack([sent.src, sent.dst]).astype(np.int64)
        joined = torch.from_numpy(np.unique(np.sort(edges, axis=0), axis=1))  # once, where units feed each other
        legal = torch.from_numpy(allowed(problem, nodes))
        return HsdagState(1, self.knobs.steps, self.encoder.constants(problem, nodes), None, joined, nodes, legal)

    def widen_ranges(self, problems: Sequence[Problem]) -> None:
        self.encoder.widen_ranges([self.reset(problem, 1).constants for problem in problems])

    def step(
        self, state: HsdagState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], HsdagState | None]:
        """Groups, a device for each in every sample, and the state with the embeddings added (sections 2.4 and 2.5)."""
        columns = self.encoder(state.constants) if state.added is None else self.encoder(state.constants) + state.added
        group, embedding, logits = self.network(columns, state.edges, partial(_keep, choose), self._zeroes(choose))
        may = group_allowed(group[None], state.allowed, len(logits))
        device = choose("device", logits.expand(state.samples, -1, -1), may)
        placements = unit_placements(state.nodes, soft_placement(device[:, group], state.allowed), self.knobs.schedule)
        added = embedding[group].detach() if state.added is None else state.added + embedding[group].detach()
        following = state._replace(left=state.left - 1, added=added)
        return placements, following if following.left else None

    def _zeroes(self, choose: Choose) -> Dropout:
        if not self.knobs.dropout:
            return Dropout(0.0, 0)
        number = choose("zeroes", next(self.parameters()).new_zeros(1, ZEROES))
        return Dropout(self.knobs.dropout, int(number))


def _keep(choose: Choose, level: int, best: Bool[Tensor, " edges"]) -> Bool[Tensor, " edges"]:
    """The best edges, or the recorded ones when a tape replays."""
    if not len(best):
        return best
    name = f"edges of level {level}"
    recorded = choose.given(name)
    kept = best.long() if recorded is None else recorded[0]
    certain = nn.functional.one_hot(kept, 2).bool()[None]
    return choose(name, best.new_zeros(1, len(best), 2, dtype=torch.float32), certain)[0].bool()
