"""Data parallelism: steps worked by hand, shares by speed, homes of tables and experts."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import equal_gpus
from support.layered import WEIGHT, layered

import gnnplace as gp
from gnnplace.baselines.data_parallel.ddp import ddp, replicated_on
from gnnplace.baselines.data_parallel.fsdp import fsdp
from gnnplace.baselines.data_parallel.hybrid import expert_parallel, hybrid
from gnnplace.baselines.data_parallel.shares import shares
from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches


def step_ns(posed, placement) -> int:
    (result,) = simulate(posed, [placement])
    assert result.infeasible is None
    return result.step_time_ns


@pytest.mark.parametrize("cards", [2, 3, 4])
def test_ddp_takes_the_time_of_a_card_and_of_the_ring(cards):
    """One layer, a gradient of 1,200 bytes: a hop sends 1,200 / R bytes and adds them (three times these bytes at 1,000
    a nanosecond), or is a view of 1 ns.

    The gradient is ready and nothing else to do but the update, so all of the ring shows: the chunks' view, R - 1 sums,
    R - 1 hops and the view of the whole.
    """
    posed = problem(micro_batches(layered(1, weight=1200), 2 * cards), equal_gpus(cards))
    alone = problem(micro_batches(layered(1, weight=1200), 2), equal_gpus(1))
    one_card = step_ns(alone, Placement(np.zeros(alone.num_ops, dtype=np.int32), "fifo"))
    proposal = ddp(posed, simulate)
    assert proposal.problem.graph.copies.shares == (2,) * cards
    send = 1200 // cards
    ring = 1 + (cards - 1) * (send + -(-3 * send // 1000)) + (cards - 1) * (send + 1) + 1
    assert step_ns(proposal.problem, proposal.placement) == one_card + ring


def test_shares_follow_the_speeds_of_cards_and_halves_take_the_fastest():
    posed = gp.problem("squeezenet", cluster="mixed-4", micro_batches=8)  # two K40s and two V100s
    assert [(each.devices.tolist(), each.number.tolist()) for each in shares(posed)] == [
        ([1, 2, 3, 4], [1, 1, 3, 3]), ([3, 4], [4, 4]), ([3], [8]),
    ]  # fmt: skip


def test_a_ring_of_v100s_sends_over_nvlink_alone():
    posed = gp.problem("squeezenet", cluster="v100-8", micro_batches=8)
    proposal = replicated_on(posed, next(iter(shares(posed))))
    (step,) = simulate(proposal.problem, [proposal.placement], timeline=True)
    links = posed.cluster.link_index[step.timeline.transfer_src, step.timeline.transfer_dst]
    assert len(links) > 100 and {posed.cluster.links[link].bandwidth_bytes_per_s for link in links.tolist()} == {50 * 10**9}


def test_replicas_of_a_node_sum_in_a_ring_of_their_own():
    posed = gp.problem("gpt2", cluster="2 nodes of 2x t4, pcie3, ethernet-10", micro_batches=8)
    proposal = ddp(posed, simulate)
    copies = proposal.problem.graph.copies
    assert (copies.shares, copies.ring_size) == ((2,) * 4, 2)
    one_ring = replicated_on(posed, next(iter(shares(posed)))._replace(ring_size=0))
    assert step_ns(proposal.problem, proposal.placement) < 0.9 * step_ns(one_ring.problem, one_ring.placement)


def test_hybrid_shards_have_all_weights_in_each_node():
    posed = gp.problem("resnet-50", cluster="2 nodes of 2x t4, pcie3, ethernet-10", micro_batches=8)
    proposal = fsdp(posed, simulate)
    graph, device = proposal.problem.graph, proposal.placement.device
    assert graph.copies.shares == (4, 4) and graph.copies.placed == "free"
    nodes = [posed.cluster.accelerators[:2].tolist(), posed.cluster.accelerators[2:].tolist()]
    for replica, node in enumerate(nodes):
        assert set(device[graph.copies.replica == replica].tolist()) == set(node)
        held = np.bincount(device, weights=graph.persistent_bytes, minlength=posed.num_devices)[node]
        assert held.min() > 0.9 * held.max()
    for micro_batch in range(8):
        copies = (graph.copies.micro_batch == micro_batch) & ~graph.copies.added & graph.phase.among(["forward"])
        assert len(set(device[copies].tolist())) == 1


def test_sharded_weights_are_spread_by_their_bytes_and_micro_batches_by_shares():
    posed = problem(micro_batches(layered(4, time_ns=100_000), 4), equal_gpus(2))
    proposal = fsdp(posed, simulate)
    graph = proposal.problem.graph
    held = np.bincount(proposal.placement.device, weights=graph.persistent_bytes)
    assert held.tolist() == [6 * WEIGHT, 6 * WEIGHT]
    copies = graph.copies
    forward = graph.kind.among(["forward"])
    assert dict(zip(copies.micro_batch[forward].tolist(), proposal.placement.device[forward].tolist(), strict=True)) == {
        0: 0, 1: 0, 2: 1, 3: 1,
    }  # fmt: skip


def test_tables_have_a_home_where_their_rows_are_looked_up():
    posed = gp.problem("dlrm", cluster="k40-4", micro_batches=8)
    proposal = hybrid(posed, simulate)
    graph, device = proposal.problem.graph, proposal.placement.device
    assert graph.copies.replicas == 4 and "tables.2.weight" in graph.op_names
    for table in ("tables.2", "tables.11", "tables.20"):
        assert len(set(device[graph.layer.among([table])])) == 1
    held = np.bincount(device, weights=graph.persistent_bytes)[1:]
    assert held.max() < 0.4 * held.sum()


def test_experts_are_spread_and_the_rest_is_replicated():
    posed = gp.problem("moe-8e", cluster="k40-4", micro_batches=4)
    proposal = expert_parallel(posed, simulate)
    graph, device = proposal.problem.graph, proposal.placement.device
    homes = [int(device[graph.op_names.index(f"layers.0.experts.experts.{e}.up.weight")]) for e in range(8)]
    assert homes == [1, 1, 2, 2, 3, 3, 4, 4]
    assert "embedding.weight@r3" in graph.op_names
    (result,) = simulate(proposal.problem, [proposal.placement])
    assert result.infeasible is None
    assert (graph.copies.micro_batch[graph.kind.among(["aten._fused_adam_"])] == NONE).all()


@pytest.mark.parametrize("rule", [hybrid, expert_parallel])
def test_a_rule_that_does_not_apply_proposes_nothing(rule):
    assert rule(problem(micro_batches(layered(2), 2), equal_gpus(2)), simulate) is None
