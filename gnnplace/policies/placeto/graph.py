"""The graph of groups as Placeto reads it, and the columns of each group under the present placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from gnnplace.graph import ComputationGraph
from gnnplace.policies.encoders.groups import edges_between, group_adjacency, sum_by_group
from gnnplace.policies.placeto.relatives import Relatives, Sums, leading_to, relatives
from gnnplace.policies.placing.group_tables import group_order
from gnnplace.policies.placing.turns import choiceless, group_allowed
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.paths import UnitStarts, unit_starts
from gnnplace.units.units import Units, allowed, kept_bytes, output_bytes, work_ns

SEEDS = 2**16  # a random order is one of so many


class UnitFacts(NamedTuple):
    """The facts of a problem's units: costs, edges, earliest starts, allowed devices, and their ops."""

    work: Float[Tensor, "units devices"]
    bytes: Float[Tensor, "units 2"]  # that they produce, and that they keep
    edges: Int[Tensor, "2 edges"]
    starts: UnitStarts
    allowed: Bool[Tensor, "units devices"]
    of_op: Int[Tensor, " ops"]
    op_edges: Int64[np.ndarray, "2 op_edges"]  # in topological order of their destinations


class PlacedGraph(NamedTuple):
    """The graphs of `leading` groupings.

    Their groups are visited in `order`; empty ones come last and have no choice.
    """

    grouping: Int[Tensor, "leading units"]
    order: Int[Tensor, "leading groups"]
    allowed: Bool[Tensor, "leading groups devices"]
    work: Float[Tensor, "leading groups devices"]
    bytes: Float[Tensor, "leading groups 2"]  # shares of the largest
    relatives: Relatives


def unit_facts(problem: Problem, units: Units) -> UnitFacts:
    """The facts of the units of a problem."""
    held = np.stack([output_bytes(problem.graph, units), kept_bytes(problem.graph, units)], axis=1)
    work, amounts = (torch.from_numpy(amount.astype(np.float32)) for amount in (work_ns(problem, units), held))
    legal, of_op = torch.from_numpy(allowed(problem, units)), torch.from_numpy(units.unit.astype(np.int64))
    return UnitFacts(
        work,
        amounts,
        edges_between(problem, units),
        unit_starts(problem, units),
        legal,
        of_op,
        _op_edges(problem.graph),
    )


def placed_graph(facts: UnitFacts, grouping: Int[Tensor, "leading units"], groups: int, sums: Sums) -> PlacedGraph:
    """The graphs that groupings make of the units.

    Groups are ordered by when their work can start, which is a topological order if they have no cycles.
    """
    used = sum_by_group(grouping, facts.work.new_ones(len(facts.work), 1), groups).squeeze(-1) > 0
    rows = grouping.cpu().numpy()
    orders = np.stack([group_order(facts.starts, row, groups)[0] for row in rows])
    before = np.stack([leading_to(facts.op_edges, row[facts.of_op.cpu().numpy()], groups) for row in rows])
    return PlacedGraph(
        grouping,
        torch.from_numpy(orders).to(grouping.device),
        choiceless(group_allowed(grouping, facts.allowed, groups), used),
        sum_by_group(grouping, facts.work, groups),
        relative(sum_by_group(grouping, facts.bytes, groups)),
        relatives(
            group_adjacency(grouping, facts.edges, groups) > 0, torch.from_numpy(before).to(grouping.device), used, sums
        ),
    )


def shuffled(graph: PlacedGraph, seeds: Int[Tensor, " leading"]) -> PlacedGraph:
    """The graph with its groups in an order drawn from each grouping's seed; empty ones still come last."""
    rows = []
    for order, count, seed in zip(
        graph.order.cpu().numpy(), graph.relatives.used.sum(1).cpu().tolist(), seeds.cpu().tolist(), strict=True
    ):
        rows.append(np.concatenate([np.random.default_rng(seed).permutation(order[:count]), order[count:]]))
    return graph._replace(order=torch.from_numpy(np.stack(rows)).to(graph.order.device))


def standing(graph: PlacedGraph, facts: UnitFacts, device: Int[Tensor, " units"]) -> Int[Tensor, "leading groups"]:
    """The device with most of each group's work, among its allowed devices, if the units stand on `device`."""
    of_unit = nn.functional.one_hot(device, facts.work.shape[1]) * facts.work.amin(1, keepdim=True)
    work = sum_by_group(graph.grouping, of_unit, graph.order.shape[1])
    return work.masked_fill(~graph.allowed, -1.0).argmax(-1)


def columns(
    graph: PlacedGraph,
    device: Int[Tensor, "samples groups"],
    turn: int,
    began: Float[Tensor, "samples groups"] | None,
    memory: bool,
) -> Float[Tensor, "leading groups each columns"]:
    """The columns of all groups before the decision number `turn`, when they stand on `device`.

    The columns are: the group's work on its device and its output bytes, both over the largest; whether it was visited,
    and whether it is its turn; when it `began` in the last step, relative to the group whose turn it is, over the
    largest distance; with `memory` the bytes that it keeps, over the largest; its device, one-hot. The authors' code
    divides start times by the largest later one alone, which may not exist.
    """
    stands = by_graph(device, len(graph.order))
    visited, current = (
        torch.zeros_like(graph.work[..., 0]).scatter_(1, some, 1.0)
        for some in (graph.order[:, :turn], graph.order[:, turn, None])
    )
    of_group = [graph.bytes[..., 0], visited, current, *([graph.bytes[..., 1]] if memory else [])]
    of_sample = [relative(graph.work.gather(2, stands))]
    if began is not None:
        start = by_graph(began, len(graph.order))
        of_current = start.gather(1, graph.order[:, turn].view(-1, 1, 1).expand(-1, 1, start.shape[2]))
        of_sample.append(relative(start - of_current))
    shared = torch.stack(of_group, dim=-1).unsqueeze(2).expand(-1, -1, stands.shape[2], -1)
    devices = nn.functional.one_hot(stands, graph.work.shape[2])
    return torch.cat([torch.stack(of_sample, dim=-1), shared, devices], dim=-1)


def start_times(
    graph: PlacedGraph, facts: UnitFacts, samples: int, results: Sequence[StepResult] | None
) -> Float[Tensor, "samples groups"]:
    """The start of each group's first op, in ns; 0 for empty groups, and without a timeline."""
    starts = np.zeros((samples, len(facts.of_op)), np.float32)
    for sample, result in enumerate(results or ()):
        starts[sample] = 0 if result.timeline is None else result.timeline.start_ns
    group = graph.grouping[:, facts.of_op].repeat_interleave(samples // len(graph.grouping), 0)
    first = facts.work.new_full((samples, graph.order.shape[1]), torch.inf)
    first = first.scatter_reduce(1, group, torch.from_numpy(starts).to(group.device), "amin")
    return first.masked_fill(first.isinf(), 0.0)


def by_graph(rows: Float[Tensor, "samples groups"] | Int64[Tensor, "samples groups"], leading: int) -> Tensor:
    """The rows of samples, with the samples of one grouping side by side: `[leading, groups, each]`."""
    return rows.view(leading, -1, rows.shape[1]).transpose(1, 2)


def relative(rows: Float[Tensor, "leading groups amounts"]) -> Float[Tensor, "leading groups amounts"]:
    """Divided by the largest of its graph, in absolute value, unless all are 0."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    return rows / torch.where(largest > 0, largest, 1)


def _op_edges(graph: ComputationGraph) -> Int64[np.ndarray, "2 op_edges"]:
    position = np.argsort(graph.order)
    return np.stack([graph.edge_src, graph.edge_dst])[:, np.argsort(position[graph.edge_dst], kind="stable")].astype(
        np.int64
    )
