"""Fusion by priorities and by default: what is joined, in which order, and what is not; and a plain implementation that says the same."""

import time
from collections import Counter
from random import Random

import numpy as np
import pytest
from support import plain_growing
from support.graphs import equal_gpus
from support.random_fusions import fused_case
from support.slow import parts, slow

from gnnplace.corpus import manifest
from gnnplace.corpus.clusters import cluster
from gnnplace.costs import roofline
from gnnplace.fused import fused
from gnnplace.fusion.defaults import default
from gnnplace.fusion.rules import leaders, refusal
from gnnplace.graph import PHASES, ComputationGraph, Op, Output
from gnnplace.policies.go.priority_levels import by_priority


def posed(ops, edges, gpus=2):
    return roofline.problem(ComputationGraph.from_ops("by-hand", ops, edges), equal_gpus(gpus))


def op(name, kind="elementwise", size=8, **columns):
    return Op(name, "Op", (Output(size),), canonical_kind=kind, **columns)


def groups(fusion):
    """The groups of several ops."""
    found = {}
    for number, label in enumerate(fusion.tolist()):
        found.setdefault(label, []).append(number)
    return [members for members in found.values() if len(members) > 1]


def levels(*values):
    return np.array(values, dtype=np.int64)


CHAIN = [(0, 0, 1), (1, 0, 2), (2, 0, 3)]


def test_a_forward_op_joins_what_it_reads_and_a_backward_op_what_reads_it():
    forward = posed([op(f"op{i}", phase="forward") for i in range(3)], CHAIN[:2])
    assert groups(by_priority(forward, levels(0, 1, 0), most_ops=2)) == [[0, 1]]
    backward = posed([op(f"op{i}", phase="backward_data") for i in range(3)], CHAIN[:2])
    assert groups(by_priority(backward, levels(0, 1, 0), most_ops=2)) == [[1, 2]]


def test_the_highest_priority_goes_first_and_of_equals_the_first_op():
    chain = posed([op(f"op{i}") for i in range(4)], CHAIN)
    assert groups(by_priority(chain, levels(0, 0, 0, 0), most_ops=2)) == [[0, 1], [2, 3]]
    assert groups(by_priority(chain, levels(0, 0, 5, 0), most_ops=2)) == [[1, 2]]
    assert groups(by_priority(chain, levels(0, 0, 5, 0), most_ops=3)) == [[0, 1, 2]]
    assert groups(by_priority(chain, levels(0, 0, 0, 0))) == [[0, 1, 2, 3]]
    assert groups(by_priority(chain, levels(-(2**63), 0, 2**63 - 1, 0), most_ops=2)) == [[1, 2]]


def test_an_op_joins_the_largest_tensor_that_it_may_join():
    reads_two = [op("small"), op("large", size=80), op("reader")]
    assert groups(by_priority(posed(reads_two, [(0, 0, 2), (1, 0, 2)]), levels(0, 0, 0))) == [[1, 2]]
    reads_two[1] = op("large", "variable", 80)
    assert groups(by_priority(posed(reads_two, [(0, 0, 2), (1, 0, 2)]), levels(0, 0, 0))) == [[0, 2]]


def test_ops_that_another_lies_between_are_not_joined():
    """`top` reads `low` and `middle`, which reads `low`: the larger tensor would make a cycle while `middle` stands alone."""
    ops = [op("low", "matmul", 80), op("middle", "matmul", 8), op("top")]
    assert groups(by_priority(posed(ops, [(0, 0, 1), (0, 0, 2), (1, 0, 2)]), levels(0, 0, 1))) == [[1, 2]]


def test_two_heavy_ops_state_and_other_devices_are_not_joined():
    chain = posed([op("a", "matmul"), op("b", "matmul"), op("c"), op("d", persistent_bytes=4)], CHAIN)
    assert groups(by_priority(chain, levels(0, 0, 0, 0))) == [[1, 2]]
    light = posed([op(f"op{i}") for i in range(4)], CHAIN)
    assert groups(by_priority(light, levels(0, 0, 0, 0), np.array([0, 0, 1, 1], np.int32))) == [[0, 1], [2, 3]]


def test_what_is_joined_has_a_device_with_all_that_is_colocated():
    here, there = {"time_ns": {"gpu:0": 5}}, {"time_ns": {"gpu:1": 5}}
    assert groups(by_priority(posed([op("a", **here), op("b", **there)], CHAIN[:1]), levels(0, 0))) == []
    ops = [op("a", colocation="x"), op("b", colocation="y"), op("c", colocation="x", **here), op("d", colocation="y", **there)]
    assert groups(by_priority(posed(ops, CHAIN[:1]), levels(0, 0, 0, 0))) == []
    assert groups(by_priority(posed(ops[:3], CHAIN[:1]), levels(0, 0, 0))) == [[0, 1]]


@pytest.mark.parametrize(
    ("priority", "most_ops", "message"), [(levels(1), 2, "priority: 1 entries for 2 ops"), (levels(1, 1), 0, "most_ops: 0")]
)
def test_bad_arguments_are_refused(priority, most_ops, message):
    with pytest.raises(ValueError, match=message):
        by_priority(posed([op("a"), op("b")], CHAIN[:1]), priority, most_ops=most_ops)


def test_frameworks_fuse_what_follows_a_convolution_and_nothing_that_is_read_twice():
    kinds = ["conv", "elementwise", "activation", "conv", "normalization", "reduce", "activation"]
    ops = [op(f"{kind}{i}", kind) for i, kind in enumerate(kinds)]
    edges = [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4), (4, 0, 5), (4, 0, 6)]
    assert groups(default(posed(ops, edges))) == [[0, 1, 2], [3, 4]]  # two read the normalization; a reduction does not follow
    assert groups(default(posed(ops, edges), np.array([0, 0, 1, 1, 1, 1, 1], np.int32))) == [[0, 1], [3, 4]]


@pytest.mark.parametrize("seeds", [range(50), *parts(range(50, 2400), 8)], ids=str)
def test_a_plain_implementation_joins_the_same(seeds):
    joined = Counter()
    for seed in seeds:
        random, case = Random(f"grow {seed}"), fused_case(seed)
        for fields in case.graph["ops"]:
            fields["phase"] = random.choice(PHASES)
        problem, device = case.problem(), case.device if random.random() < 0.5 else None
        priority = levels(*(random.randint(0, 3) for _ in case.device))
        most_ops, place = random.choice([2, 4, 64]), {op: i for i, op in enumerate(problem.graph.order.tolist())}
        order = sorted(place, key=lambda op: (-int(priority[op]), place[op]))
        found = by_priority(problem, priority, None if device is None else np.array(device, np.int32), most_ops)
        assert found.tolist() == plain_growing.by_priority(problem, case.graph, order, device, most_ops), seed
        joined[max(np.bincount(found))] += 1
    assert joined[2] and joined[3] and joined[4]


@pytest.mark.parametrize("graph", ["inception-v3-b1", slow("nmt-4"), slow("bert-base")])
def test_a_fused_graph_of_the_corpus_keeps_the_rules_and_is_quick_to_find(graph):
    problem = roofline.problem(manifest.graph(graph), cluster("k40-2"))
    generator = np.random.default_rng(0)
    for most_ops in (4, 64):
        drawn = generator.integers(0, 8, problem.num_ops)
        for fusion in (by_priority(problem, drawn, most_ops=most_ops), default(problem, most_ops=most_ops)):
            assert refusal(problem.graph, fusion) is None and np.array_equal(fusion, leaders(fusion))
            assert 1 < np.bincount(fusion).max() <= most_ops
    start = time.process_time()
    by_priority(problem, drawn)
    assert time.process_time() - start < 0.5
    assert fused(problem, fusion).problem.num_ops < problem.num_ops
