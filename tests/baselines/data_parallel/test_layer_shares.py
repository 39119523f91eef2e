"""Shares by layer: rows and estimates by hand, shares of kinds of devices, names, turns, and faster steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import equal_gpus
from support.layered import layered
from support.random_steps import random_step

from gnnplace.baselines.data_parallel import layer_shares as search
from gnnplace.baselines.data_parallel.ddp import ddp
from gnnplace.baselines.data_parallel.family_names import family_names
from gnnplace.baselines.data_parallel.hybrid import hybrid
from gnnplace.baselines.data_parallel.layer_estimate import LESS, LayerEstimate
from gnnplace.baselines.data_parallel.layer_row import layer_row
from gnnplace.baselines.data_parallel.layer_shares import _turns, layer_shares
from gnnplace.baselines.data_parallel.share_vectors import kinds, share_vectors
from gnnplace.cluster import Cluster, Link
from gnnplace.corpus import manifest
from gnnplace.corpus.clusters import cluster
from gnnplace.costs.roofline import problem
from gnnplace.graph import Categorical
from gnnplace.problems import Problem
from gnnplace.result import Proposal, score
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.parallelism import Parallelism

NS = 1_000_000


def unequal(layers: int, number: int, slower: int) -> Problem:
    """A card, and another that takes so many times as long; the loss is a layer."""
    graph = layered(layers, time_ns=NS)
    graph = replace(graph, layer=graph.layer.filled([graph.op_names.index("loss")], ["loss"]))
    posed = problem(micro_batches(graph, number), equal_gpus(2))
    return Problem(posed.graph, posed.cluster, posed.time_ns * np.array([1, slower]))


def unlayered() -> Problem:
    posed = problem(micro_batches(replace(layered(3), layer=Categorical.of([None] * layered(3).num_ops)), 4), equal_gpus(2))
    return Problem(posed.graph, posed.cluster, posed.time_ns * np.array([1, 2]))


def two_nodes(far: int) -> Cluster:
    """Two nodes of two cards, with so many bytes a second between the nodes."""
    near = equal_gpus(4)
    node = {device.name: number // 2 for number, device in enumerate(near.devices)}
    links = tuple(Link(each.src, each.dst, 10**9 if node[each.src] == node[each.dst] else far) for each in near.links)
    return Cluster("two nodes", near.devices, links)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search with one look beside the best and few simulations."""
    monkeypatch.setattr(search, "ROUNDS", 1)
    monkeypatch.setattr(search, "MOST", 5)


def step_ns(proposal: Proposal) -> int:
    (result,) = simulate(proposal.problem, [proposal.placement])
    return score(proposal.problem, result).step_time_ns


def test_a_row_has_the_work_and_the_bytes_of_each_layer():
    """A layer has a forward op and two gradients a micro-batch, three sums of its gradient over four, and one update."""
    row = layer_row(unequal(2, 4, 2))
    assert row.names == ("layer.0", "layer.1", "loss")
    added = row.work_ns[0, 0] - 3 * NS
    assert 2 < added < 3 and row.work_ns[:, 0].tolist() == [3 * NS + added, 3 * NS + added, NS + 1]  # and a mean of losses
    assert row.update_ns[:, 0].tolist() == [NS, NS, 0] and row.summed_bytes.tolist() == [1000, 1000, 0]
    sends = list(zip(row.src.tolist(), row.dst.tolist(), row.sent_bytes.tolist(), strict=True))
    assert sends == [(0, 1, 100), (1, 0, 100), (1, 2, 100), (2, 1, 4)]
    assert row.crossing_bytes.tolist() == [0, 200, 104, 0] and row.cuts() == [0, 1, 2, 3] and not row.single


def test_an_estimate_is_the_largest_load_with_what_is_waited_for():
    """Layers of 3 + s, 3 + s and 1 ms, updates of 1 ms. All on the fast card; then the slow one has a layer of two micro-batches."""
    posed = unequal(2, 4, 2)
    row = layer_row(posed)
    estimate, layer = LayerEstimate(posed.cluster, row, 4), row.work_ns[0, 0]
    alone, shared = estimate.step_ns(np.array([[[4, 0], [4, 0], [4, 0]], [[2, 2], [4, 0], [4, 0]]]))[0]
    assert alone == pytest.approx(8 * layer + 6 * NS + LESS * (8 * layer + 6 * NS) / 2)
    fast, slow = 6 * layer + 6 * NS, 4 * layer + 2 * NS  # the slow card's second micro-batch covers what it waits for
    waits = max(0, layer + NS + 304 - (slow - 2 * layer))
    assert shared == pytest.approx(max(fast, slow + waits) + LESS * (fast + slow) / 2, rel=1e-3)
    late = estimate.step_ns(np.array([[[4, 0], [4, 0], [0, 4]]]))[0, 0]
    assert late > 8 * NS + 2 * layer  # the loss is behind the layers of a micro-batch


def test_shares_of_devices_of_one_kind_differ_by_one_at_most():
    speeds = np.array([2.0, 1.0, 1.0])
    found = share_vectors(equal_gpus(3), np.arange(3), speeds, 5)
    assert found[0].tolist() == [1, 2, 2] and [0, 2, 3] in found.tolist()
    assert (found.sum(axis=1) == 5).all() and (np.abs(found[:, 1] - found[:, 2]) <= 1).all()
    many = share_vectors(equal_gpus(12), np.arange(12), np.arange(1.0, 13.0), 40)
    assert len(many) > 1 and (many.sum(axis=1) == 40).all() and (many >= 0).all()


def test_devices_of_one_kind_are_equally_fast_and_near():
    equal = np.ones(4)
    assert kinds(two_nodes(10**9), np.arange(4), equal).tolist() == [0, 0, 0, 0]
    assert kinds(two_nodes(10**8), np.arange(4), equal).tolist() == [0, 0, 1, 1]
    assert len(set(kinds(two_nodes(10**9), np.arange(4), np.array([1.0, 1.0, 2.0, 2.0])).tolist())) == 2


def test_a_layer_around_one_with_other_shares_is_not_named():
    shares = {"a": (4, 0), "a.b": (1, 3), "a/c": (4, 0), "d": (2, 2), "e[0]": (0, 4)}
    assert family_names(shares, (2, 2)) == (("a.b", (1, 3)), ("a/c", (4, 0)), ("e[[]0]", (0, 4)))


def test_cut_micro_batches_come_first():
    assert _turns(np.array([1, 1, 3, 3]), [(0, 0, 4, 4)]).tolist() == [0, 1, 8, 9, 10, 8, 9, 10]
    assert _turns(np.array([2, 2]), [(0, 4)]).tolist() == [0, 1, 4, 5]
    assert _turns(np.array([2, 2]), []).tolist() == [4, 5, 4, 5]


@pytest.mark.usefixtures("short")
def test_a_cut_evens_out_what_whole_micro_batches_do_not():
    """Of four micro-batches 3 and 1 take 3 and 2; the third of one that is cut makes it 2.7."""
    posed = unequal(4, 4, 2)
    cut = layer_shares(posed, simulate)
    assert cut is not None and step_ns(cut) < 0.97 * step_ns(ddp(posed, simulate))
    copies = cut.problem.graph.copies
    assert copies.placed == "whole" and copies.family_shares


@pytest.mark.usefixtures("short")
def test_nodes_far_from_each_other_have_layers_of_their_own():
    """The ring of all gradients takes longer than the work; activations are small."""
    graph = layered(4, time_ns=100_000, weight=1_000_000)
    posed = problem(micro_batches(graph, 4), two_nodes(10**8))
    apart = layer_shares(posed, simulate)
    assert apart is not None and step_ns(apart) < 0.75 * step_ns(ddp(posed, simulate))
    families = {shares for _, shares in apart.problem.graph.copies.family_shares}
    assert families == {(2, 2, 0, 0), (0, 0, 2, 2)}


@pytest.mark.parametrize("posed", [unequal(3, 4, 1), unlayered()], ids=["equal cards", "no layers"])
def test_without_a_cut_that_helps_there_is_no_proposal(posed):
    assert layer_shares(posed, simulate) is None


@pytest.mark.usefixtures("short")
def test_shares_that_are_no_better_than_whole_micro_batches_are_not_proposed():
    posed = unequal(4, 4, 2)
    whole = ddp(posed, simulate)
    same = simulate(whole.problem, [whole.placement])
    assert layer_shares(posed, lambda *_: same) is None


@pytest.mark.usefixtures("short")
def test_tables_have_homes_that_even_out_their_work():
    posed = problem(micro_batches(manifest.graph("dlrm"), 4), cluster("k40-4"))
    homes = layer_shares(posed, simulate)
    assert homes is not None and step_ns(homes) < 0.9 * min(step_ns(rule(posed, simulate)) for rule in (ddp, hybrid))
    tables = [shares for name, shares in homes.problem.graph.copies.family_shares if name.startswith("tables")]
    at = np.argmax(tables, axis=1)
    assert len(tables) == 26 and {max(shares) for shares in tables} == {4} and np.ptp(np.bincount(at)) <= 2


@pytest.mark.usefixtures("short")
def test_ops_that_hold_parameters_and_compute_are_of_every_micro_batch():
    """From the graph of one micro-batch alone this step would be refused; the step says which ops run once."""
    posed = problem(Parallelism(3).of(random_step(22)), equal_gpus(3))
    unlike = Problem(posed.graph, posed.cluster, posed.time_ns * np.array([1, 2, 3]))
    shared = layer_shares(unlike, simulate)
    assert shared is None or step_ns(shared) < step_ns(ddp(unlike, simulate))


def test_links_carry_what_surpluses_send_and_the_sums_of_a_ring():
    """Two of four micro-batches go over behind the first layer, 100 bytes each, and come back; a ring of two sends 1,000 bytes."""
    posed = unequal(2, 4, 2)
    estimate = LayerEstimate(posed.cluster, layer_row(posed), 4)
    whole, parted = estimate._links(np.array([[[4, 0], [4, 0], [4, 0]], [[2, 2], [4, 0], [4, 0]]]))
    assert whole.tolist() == [[0, 0], [0, 0]] and parted.tolist() == [[0, 1200], [1200, 0]]


def test_homes_even_out_work():
    posed = unequal(3, 4, 1)
    row = replace(layer_row(posed), single=(np.array([0]), np.array([1])))
    homes = search.SharesSearch(posed, simulate, row).with_homes(np.tile([2, 2], (4, 1)), np.ones(2, dtype=bool))
    assert homes.tolist() == [[4, 0], [0, 4], [2, 2], [2, 2]]


def test_rings_of_nodes_are_weighed_as_they_send():
    """A gradient of 1,000 bytes on each of two layers: in a node 2 (2 - 1) / 2 of it, between nodes as much, by a link for all."""
    posed = problem(micro_batches(layered(2), 4), two_nodes(100_000_000))
    row = layer_row(posed)
    estimate = LayerEstimate(posed.cluster, row, 4)
    everywhere, first_node = np.ones((1, len(row.names), 4), dtype=np.int64), np.zeros((1, len(row.names), 4), dtype=np.int64)
    first_node[:, :, :2] = 2
    summed = row.summed_bytes.sum()
    assert summed == 2000
    for shares, between in ((everywhere, summed * 10), (first_node, 0)):
        links = estimate._links(shares)[0]
        assert links[0, 1] == links[1, 0] == summed and links[0, 2] == links[1, 3] == between and links[0, 3] == 0
    assert estimate._links(first_node)[0][2:].sum() == 0
