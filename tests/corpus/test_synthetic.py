"""Synthetic graphs have the size, the shape and the seed that they are asked for, and cost what ops of their donors cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.donors import donor, expected_rows, figures

from gnnplace.choices import FAMILIES
from gnnplace.corpus import clusters, manifest
from gnnplace.corpus.synthetic import synthetic
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate

FAMILY = st.sampled_from(FAMILIES)
SIZE, SEED = st.integers(4, 60), st.integers(0, 2**32)
FEW = settings(max_examples=25)


def neighbours(graph):
    """How many ops each op takes from, and gives to."""
    pairs = np.unique(np.stack([graph.edge_src, graph.edge_dst], axis=1), axis=0)
    return np.bincount(pairs[:, 1], minlength=graph.num_ops), np.bincount(pairs[:, 0], minlength=graph.num_ops)


@FEW
@given(FAMILY, SIZE, SEED)
def test_every_op_is_there_and_none_stands_alone(family, size, seed):
    graph = synthetic(family, num_ops=size, seed=seed, donors=[donor()])
    inputs, outputs = neighbours(graph)
    assert graph.num_ops == size and graph.name == f"{family}-{size}-seed{seed}"
    assert (graph.edge_src < graph.edge_dst).all()
    assert (inputs + outputs > 0).all()
    if family != "layered":
        assert np.count_nonzero(inputs == 0) == np.count_nonzero(outputs == 0) == 1


@FEW
@given(FAMILY, SIZE, SEED)
def test_the_same_arguments_give_the_same_graph(family, size, seed):
    first, second = (synthetic(family, num_ops=size, seed=seed, donors=[donor(), donor("b", 2)]) for _ in range(2))
    assert first.sha256 == second.sha256


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_differ_in_more_than_their_names(family):
    graphs = [synthetic(family, num_ops=60, seed=seed, donors=[donor()]) for seed in range(10)]
    assert len({graph.flops.tobytes() for graph in graphs}) == 10
    if family != "repeated-block":
        assert len({(graph.edge_src.tobytes(), graph.edge_dst.tobytes()) for graph in graphs}) == 10


SUMS = f"""
from support.donors import donor
from gnnplace.corpus.synthetic import synthetic
print([synthetic(family, num_ops=99, seed=4, donors=[donor()]).sha256 for family in {FAMILIES}])
"""
SECONDS = f"""
import time
from support.donors import donor
from gnnplace.corpus.synthetic import synthetic
donors = [donor(rows=1000)]
for family in {FAMILIES}:
    synthetic(family, num_ops=100, seed=0, donors=donors)  # compiles
    seconds = []
    for seed in range(3):
        start = time.process_time()
        synthetic(family, num_ops=10_000, seed=seed, donors=donors)
        seconds.append(time.process_time() - start)
    print(min(seconds))
"""


def elsewhere(program, hash_seed=0):
    """What a program prints in a process of its own, where no types are checked."""
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join([".", "tests"])}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120, env=environment
    ).stdout.strip()  # fmt: skip


def test_hash_seeds_change_nothing():
    here = str([synthetic(family, num_ops=99, seed=4, donors=[donor()]).sha256 for family in FAMILIES])
    assert [elsewhere(SUMS, hash_seed) for hash_seed in (1, 2)] == [here, here]


@pytest.mark.slow
def test_ten_thousand_ops_take_well_under_a_second_of_processor_time():
    assert max(map(float, elsewhere(SECONDS).split())) < 1


@FEW
@given(FAMILY, SEED)
def test_every_op_costs_what_a_row_of_a_donor_says(family, seed):
    graph = synthetic(family, num_ops=80, seed=seed, donors=[donor()])
    assert {figures(graph, op) for op in range(80)} <= expected_rows()


def test_all_rows_of_all_donors_are_drawn_and_donors_equally_often():
    graph = synthetic("layered", num_ops=1000, seed=0, donors=[donor("large", 300), donor("small", 2)])
    drawn = Counter(figures(graph, op) for op in range(1000))
    assert expected_rows(2) <= drawn.keys() <= expected_rows(300)
    share = sum(drawn[row] for row in expected_rows(2)) / 1000
    assert 0.45 < share < 0.55


@FEW
@given(st.integers(4, 80), SEED, st.integers(1, 40))
def test_layers_are_as_wide_as_asked(size, seed, width):
    width = min(width, size)
    graph = synthetic("layered", num_ops=size, seed=seed, donors=[donor()], width=width)
    sizes = np.bincount(graph.level)
    assert len(sizes) > 1 and sizes.max() <= width
    assert (sizes[1:-1] >= width / 2).all()
    inputs, outputs = neighbours(graph)
    assert (inputs[graph.level > 0] > 0).all() and (outputs[graph.level < graph.level.max()] > 0).all()


@pytest.mark.parametrize("density", [1.0, 2.0, 3.5])
def test_layered_graphs_are_as_dense_as_asked(density):
    graph = synthetic("layered", num_ops=1500, seed=1, donors=[donor()], density=density)
    assert density * 0.95 < graph.num_edges / 1500 < density * 1.05 + 0.4  # an op without a consumer gets one


@FEW
@given(SIZE, SEED)
def test_a_fork_joins_all_its_chains(size, seed):
    graph = synthetic("fork-join", num_ops=4 + size, seed=seed, donors=[donor()], width=3, blocks=1)
    inputs, outputs = neighbours(graph)
    inner = slice(1, -1)
    assert outputs[0] == inputs[-1] == 3
    assert (inputs[inner] == 1).all() and (outputs[inner] == 1).all()


@FEW
@given(SEED)
def test_fork_joins_follow_one_another(seed):
    graph = synthetic("fork-join", num_ops=100, seed=seed, donors=[donor()], width=5, blocks=6)
    inputs, outputs = neighbours(graph)
    assert np.count_nonzero(outputs == 5) == np.count_nonzero(inputs == 5) == 6
    assert graph.num_edges == 99 + 6 * 4 and np.unique(graph.block).tolist() == list(range(6))


@FEW
@given(SIZE, SEED, st.floats(1, 2))
def test_series_parallel_graphs_reduce_to_one_edge(size, seed, density):
    graph = synthetic("series-parallel", num_ops=size, seed=seed, donors=[donor()], density=density)
    edges = Counter(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True)).keys()
    assert reduced(set(edges), size) == {(0, size - 1)}


def reduced(edges, size):
    """Ops with one input and one output give way to one edge, which may double another, until none is left."""
    for _ in range(size):
        for op in range(1, size - 1):
            before, after = [e for e in edges if e[1] == op], [e for e in edges if e[0] == op]
            if len(before) == len(after) == 1:
                edges = edges - {before[0], after[0]} | {(before[0][0], after[0][1])}
    return edges


@FEW
@given(st.integers(8, 80), SEED)
def test_copies_of_a_block_are_equal(size, seed):
    graph = synthetic("repeated-block", num_ops=size, seed=seed, donors=[donor()], blocks=4)
    members = [np.flatnonzero(graph.block == block) for block in range(4)]
    assert {len(ops) for ops in members} == {size // 4}
    assert len({tuple(figures(graph, op) for op in ops.tolist()) for ops in members}) == 1
    inside = [
        {(src - ops[0], dst - ops[0]) for src, dst in zip(graph.edge_src, graph.edge_dst, strict=True) if src in ops and dst in ops}
        for ops in members
    ]
    assert all(edges == inside[0] for edges in inside)


@pytest.mark.parametrize(("family", "cluster"), product(FAMILIES, ["k40-2", "k40-8"]))
def test_graphs_of_real_costs_run(family, cluster):
    donors = [manifest.graph(name) for name in ("nmt-2", "inception-v3-b32")]
    drawn = problem(synthetic(family, num_ops=300, seed=5, donors=donors), clusters.cluster(cluster))
    spread = np.random.default_rng(0).integers(1, drawn.num_devices, 300).astype(np.int32)
    alone, apart = simulate(drawn, [Placement(device) for device in (np.ones(300, dtype=np.int32), spread)])
    assert alone.infeasible is None and apart.infeasible is None
    assert alone.step_time_ns == drawn.time_ns[:, 1].sum() and alone.transfers == 0 < apart.transfers
    assert (drawn.graph.flops > 0).any() and (drawn.graph.persistent_bytes > 0).any()


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("layered", {"num_ops": 3}, "num_ops: 3 is not between 4 and 10000000"),
        ("layered", {"seed": -1}, "seed: -1 is negative"),
        ("layered", {"density": 51.0}, "density: 51.0 is more than the 50 ops that there are"),
        ("layered", {"width": 0}, "width: 0 is less than 1"),
        ("layered", {"density": float("nan")}, "density: nan is less than 1"),
        ("layered", {"blocks": 3}, "blocks: no option of layered graphs, which have width, density"),
        ("fork-join", {"width": 4, "blocks": 10}, "num_ops: 50 is less than 51, for 10 blocks of 4 chains"),
        ("series-parallel", {"density": 2.5}, "density: 2.5 is not between 1 and 2"),
        ("repeated-block", {"blocks": 26}, "num_ops: 50 is less than 52, for 26 blocks of two ops or more"),
        ("layered", {"donors": []}, "donors: none given"),
        ("layered", {"donors": [ComputationGraph.from_ops("bare", [Op("x", "x")], [])]}, "donors: 'bare' has no op that runs a kernel"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(family, options, message):
    with pytest.raises(ValueError, match=message):
        synthetic(family, **({"num_ops": 50, "seed": 0, "donors": [donor()]} | options))
