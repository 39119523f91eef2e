"""Ops in pieces: all of an op is kept, but for how long its device must stay with it."""

import numpy as np
import pytest
from support.graphs import equal_gpus, op
from support.random_problems import random_case

from experiments.room.pieces import in_pieces
from gnnplace.bounds.bounds import lower_bound
from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import units

LONG, FIRST, URGENT, LAST = range(4)


def step(posed, device):
    tied = units(posed.graph, "ops").unit
    placement = Placement(np.array(device, dtype=np.int32)[np.array([np.flatnonzero(tied == unit)[0] for unit in tied])])
    (result,) = simulate(posed, [placement])
    return result.step_time_ns


def test_what_is_urgent_waits_for_a_piece_and_not_for_the_whole():
    """`urgent` comes to the device of `long`, which has begun, 11 ns later, and `last` waits for it."""
    ops = [op("long", 1000), op("first", 10), op("urgent", 10), op("last", 1000)]
    posed = problem(ComputationGraph.from_ops("blocked", ops, [(FIRST, 0, URGENT), (URGENT, 0, LAST)]), equal_gpus(2))
    assert step(posed, [0, 1, 0, 1]) == 1000 + 10 + 1 + 1000
    pieces = in_pieces(posed, 100)
    assert pieces.num_ops == 4 + 9 + 9 and step(pieces, [0, 1, 0, 1]) == 100 + 10 + 1 + 1000
    assert lower_bound(pieces) == lower_bound(posed) == 1020


@pytest.mark.parametrize("seed", range(60))
def test_pieces_stand_together_one_after_the_other_between_the_inputs_and_the_outputs_of_their_op(seed):
    posed = random_case(seed).problem()
    if posed.contended_ns is not None:
        posed = problem(posed.graph, equal_gpus(2))
    before, ops, most_ns = posed.graph, posed.num_ops, 2
    pieces = in_pieces(posed, most_ns)
    after, unit = pieces.graph, units(pieces.graph, "ops").unit
    edges = set(zip(after.edge_src.tolist(), after.edge_output.tolist(), after.edge_dst.tolist(), strict=True))
    assert pieces.time_ns.min(axis=1).max() <= most_ns
    assert (after.output_op == before.output_op).all() and (after.output_alias == before.output_alias).all()
    for number in range(ops):
        chain = [number]
        while len(earlier := [src for src, output, dst in edges if dst == chain[0] and src >= ops]):
            assert len(earlier) == 1 and (earlier[0], CONTROL, chain[0]) in edges
            chain.insert(0, earlier[0])
        assert len(chain) == -(-posed.time_ns[number].min() // most_ns) and len(set(unit[chain])) == 1
        spent = pieces.time_ns[chain].sum(axis=0) - posed.time_ns[number]
        assert (spent >= 0).all() and (spent < len(chain)).all()
        inputs = {(src, output) for src, output, dst in edges if dst == number and src < ops}
        assert {(src, output) for src, output, dst in edges if dst == chain[0] and src < ops} == inputs
        own = before.in_edges[before.in_ptr[number] : before.in_ptr[number + 1]]
        assert inputs == set(zip(before.edge_src[own].tolist(), before.edge_output[own].tolist(), strict=True))
    together = before.colocation.index != NONE
    assert ((before.colocation.index[:, None] == before.colocation.index) & together <= (unit[:ops, None] == unit[:ops])).all()
    assert after.persistent_bytes.sum() == before.persistent_bytes.sum() and after.workspace_bytes.sum() == before.workspace_bytes.sum()


@pytest.mark.parametrize("seed", range(10))
def test_pieces_of_any_length_are_the_problem_itself(seed):
    posed = problem(random_case(seed).problem().graph, equal_gpus(2))
    pieces, device = in_pieces(posed, int(posed.time_ns.max())), [0] * posed.num_ops
    assert pieces.num_ops == posed.num_ops and (pieces.graph.edge_dst == posed.graph.edge_dst).all()
    assert step(pieces, device) == step(posed, device)
