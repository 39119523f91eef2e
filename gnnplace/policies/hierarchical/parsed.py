"""Groups by graph parsing: a score for every edge says whether its ends belong together, and the best edges join units.

The scores are those of HSDAG (Duan et al., NeurIPS 2024, section 2.4; Song et al., ICLR 2024): an MLP over both ends'
embeddings. There each node keeps its best edge, and the number of groups follows. Here edges join groups from the best
on, as long as a group has no more than its share of the work, until few enough are left. Nothing names a group, so what
edges have learned on some graphs says the same of others.

The scores learn from a clustering: whether it cuts the edge. Placements teach them as in HSDAG: a group's embedding is
multiplied by the mean probability that its inner edges are kept (by 1 without such edges).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64
from torch import Tensor, nn

from gnnplace.policies.clustering import by_time
from gnnplace.policies.features import EDGE_FEATURES, edges_with_features
from gnnplace.policies.glorot import glorot
from gnnplace.policies.hierarchical.grouper import Grouped
from gnnplace.policies.placing.base import Base
from gnnplace.policies.protocol import Choose
from gnnplace.problems import Problem
from gnnplace.schedules.paths import UnitStarts, unit_starts
from gnnplace.units.contraction import merge_under
from gnnplace.units.units import Units

CUT, KEPT = 0, 1
SHARES = (1.0, 2.0, 4.0)  # of a group's even share of the work: what the largest may have, tried in turn


class ParsedGraph(NamedTuple):
    """The edges between the units of one problem, with their features, and the work and starts of units."""

    edges: Int64[Tensor, "2 edges"]
    features: Float[Tensor, "edges edge_features"]
    starts: UnitStarts


class ParsingGrouper(nn.Module):
    """The logits of an edge to be cut or kept, from the embeddings of its ends, in either direction, and its features.

    `options` is the largest number of groups. A `Grouping`: the groups that edges make are kept on a tape, and weights
    determine them, so their log-probability is 0.
    """

    taught: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    scheduled: ClassVar[bool] = False

    def __init__(self, width: int, options: int, *, hidden: int = 64) -> None:
        super().__init__()
        self.options = options
        self.layers = nn.Sequential(nn.Linear(2 * width + EDGE_FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        glorot(self)

    def reads(self, problem: Problem, units: Units, base: Base | None) -> ParsedGraph:
        return ParsedGraph(*edges_with_features(problem, units), unit_starts(problem, units))

    def fixed(self, reads: ParsedGraph) -> None:
        return None

    def group(
        self, reads: ParsedGraph, embeddings: Float[Tensor, "units width"] | None, choose: Choose, groupings: int
    ) -> Grouped:
        assert embeddings is not None
        logits, recorded = self(embeddings, reads), choose.given("group")
        group = self.groups(logits, reads) if recorded is None else recorded
        certain = nn.functional.one_hot(group, self.options).bool()
        group = choose("group", torch.zeros(certain.shape, device=group.device), certain)
        return Grouped(group, self.inner(logits, reads, group))

    def decide(
        self, reads: ParsedGraph, embeddings: Float[Tensor, "units width"], choose: Choose, groupings: int
    ) -> Int[Tensor, "1 edges"]:
        return choose("edge", self(embeddings, reads)[None])

    def target(self, reads: ParsedGraph, group: Int[Tensor, " units"]) -> Mapping[str, Int[Tensor, "1 edges"]]:
        src, dst = reads.edges
        return {"edge": (group[src] == group[dst]).long()[None]}

    def forward(self, embeddings: Float[Tensor, "units width"], of: ParsedGraph) -> Float[Tensor, "edges 2"]:
        first, second = embeddings[of.edges[0]], embeddings[of.edges[1]]
        return self.layers(torch.cat([first * second, (first - second).abs(), of.features], dim=-1))

    def groups(self, logits: Float[Tensor, "edges 2"], of: ParsedGraph) -> Int[Tensor, "1 units"]:
        """The group of each unit, numbered by when their work can start."""
        kept = (logits[:, KEPT] - logits[:, CUT]).detach().double().cpu().numpy()
        part = joined(of.edges.cpu().numpy(), kept, of.starts.work_ns, self.options)
        return torch.from_numpy(by_time(of.starts, part, self.options))[None].to(logits.device)

    def inner(
        self, logits: Float[Tensor, "edges 2"], of: ParsedGraph, group: Int[Tensor, "1 units"]
    ) -> Float[Tensor, "1 groups 1"]:
        """The mean probability that the edges inside each group are kept; 1 without such edges."""
        ends = group[0][of.edges]
        inside = ends[0] == ends[1]
        sums = logits.new_zeros(self.options).index_add(0, ends[0][inside], logits.softmax(-1)[inside, KEPT])
        count = torch.bincount(ends[0][inside], minlength=self.options)
        return torch.where(count > 0, sums / count.clamp(min=1), 1.0)[None, :, None]


def joined(
    edges: Int64[np.ndarray, "2 edges"],
    score: Float64[np.ndarray, " edges"],
    work: Float64[np.ndarray, " units"],
    groups: int,
) -> Int64[np.ndarray, " units"]:
    """Parts of units that edges have joined, from the best score on, until `groups` are left or no edge may join more.

    No part gets more than the largest share of the work; if too many parts are left, a larger one is tried. Of equal
    scores the first edge comes first.
    """
    order = np.argsort(-score, kind="stable")
    each = np.maximum(1, work.astype(np.int64))
    part, load = np.arange(len(work)), each
    for share in (*SHARES, float(groups)):
        cap, surplus = int(share * load.sum() / groups), max(0, len(load) - groups)
        label = merge_under(*part[edges[:, order]], load, cap, surplus)[part]
        _, part = np.unique(label, return_inverse=True)
        load = np.bincount(part, weights=each).astype(np.int64)
    return part
