"""Replicas: what is copied, that rings sum every gradient everywhere, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from support.layered import WEIGHT, layered

from gnnplace.corpus import manifest
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.transformations import gathering
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.replicas import replicas

SHARES = ([1, 1], [2, 1], [1, 3, 2], [1] * 5)


def inputs(graph: ComputationGraph, op: int) -> list[tuple[int, int]]:
    """The (op, output) pairs that an op reads."""
    edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
    return [(int(graph.edge_src[edge]), int(graph.edge_output[edge])) for edge in edges]


def summed(graph: ComputationGraph, op: int, output: int, known: dict[tuple[int, int], set]) -> set[tuple[str, int]]:
    """The gradients, and their parts, that an output holds: (copy, chunk) pairs, chunk -1 for all of it."""
    if (op, output) not in known:
        name, sources = graph.op_names[op], inputs(graph, op)
        parts = [summed(graph, *source, known) for source in sources]
        if graph.kind[op] == "gradient":
            held = {(name, -1)}
        elif "/chunks@" in name:
            held = {(copy, output) for copy, _ in parts[0]}
        else:
            held = set().union(*parts)
        known[op, output] = held
    return known[op, output]


@pytest.mark.parametrize("copies", ["together", "whole"])
@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_each_chunk_of_a_ring_is_the_sum_of_all_micro_batches(shares, copies):
    graph = replicas(layered(2), shares, copies)
    rings = [op for op, name in enumerate(graph.op_names) if "/reduced@" in name]
    known: dict[tuple[int, int], set] = {}
    for op in rings:
        held = set().union(*(summed(graph, *source, known) for source in inputs(graph, op)))
        gradients = {copy.partition("@")[0] for copy, _ in held}
        assert held == {(f"{g}@{m}", c) for g in gradients for m in range(sum(shares)) for c in range(len(shares))}
        assert len(inputs(graph, op)) == len(shares)
    assert len(rings) == len(shares) * (1 if copies == "whole" else 2)  # a bucket for each group of colocated gradients


@pytest.mark.parametrize(("number", "ring_size"), [(4, 2), (6, 2), (6, 3), (8, 4)])
def test_rings_of_nodes_sum_all_micro_batches_and_send_less_between_nodes(number, ring_size):
    one, nodes = (replicas(layered(1, weight=4800), [1] * number, "whole", ring_size=size) for size in (0, ring_size))
    known: dict[tuple[int, int], set] = {}
    for op in (op for op, name in enumerate(nodes.op_names) if name.startswith("bucket0/reduced@")):
        held = set().union(*(summed(nodes, *source, known) for source in inputs(nodes, op)))
        assert {copy for copy, _ in held} == {f"{copy.partition('@')[0]}@{m}" for copy, _ in held for m in range(number)}
    crossing = []
    for graph in (one, nodes):
        here, there = (graph.copies.replica[ends] // ring_size for ends in (graph.edge_src, graph.edge_dst))
        sent = {int(edge_data) for edge_data in graph.edge_data[(here == 0) & (there != 0) & (graph.edge_data != NONE)]}
        crossing.append(sum(int(graph.output_bytes[output]) for output in sent))
    rings = number // ring_size
    assert crossing == [4800 * 2 * (number - 1) // number, 4800 * 2 * (rings - 1) // rings]


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("name", ["dlrm", "squeezenet", "gcn"])
def test_variables_and_updates_are_copied_and_micro_batches_shared(name, shares):
    graph = manifest.graph(name)
    step = replicas(graph, shares)
    copies = step.copies
    assert step.persistent_bytes.sum() == len(shares) * graph.persistent_bytes.sum()
    times = np.bincount(copies.source[~copies.added], minlength=graph.num_ops)
    once = np.bincount(copies.source[~copies.added & (copies.micro_batch == NONE)], minlength=graph.num_ops) > 0
    assert (times == np.where(once, len(shares), sum(shares))).all()
    assert np.bincount(copies.replica[copies.micro_batch != NONE], minlength=len(shares)).argsort(kind="stable").tolist() == (
        np.argsort(shares, kind="stable").tolist()
    )


def test_one_replica_of_one_micro_batch_is_the_graph_itself():
    graph = layered(1)
    assert replicas(graph, [1]) is graph


def test_one_gradient_in_a_bucket_is_not_copied_and_several_are():
    alone, both = (replicas(layered(layers), [1, 1], "whole") for layers in (1, 2))
    assert "bucket0/flat@r0" not in alone.op_names
    flat = both.op_names.index("bucket0/flat@r0")
    assert both.output_bytes[both.output_ptr[flat]] == 2 * WEIGHT


def test_buckets_are_filled_in_the_order_of_the_backward_pass():
    step = replicas(layered(4, weight=500_000), [1, 1], "whole")  # the first is full with 1 MiB
    readers = {name: {source for source, _ in inputs(step, op)} for op, name in enumerate(step.op_names) if name.startswith("u")}
    bucket = {name: step.op_names[next(s for s in sources if "bucket" in step.op_names[s])] for name, sources in readers.items()}
    assert [bucket[f"u{layer}@r0"] for layer in (3, 2, 1, 0)] == ["bucket0/reduced@r0"] * 3 + ["bucket1/reduced@r0"]


def test_a_variable_with_one_home_is_not_copied():
    step = replicas(layered(2), [1, 1], "whole", one_home=["layer.1"])
    assert [name for name in step.op_names if name.startswith(("w", "u"))] == [
        "w0@r0", "w0@r1", "w0/read@r0", "w0/read@r1", "w1", "w1/read", "u1", "u0@r0", "u0@r1",
    ]  # fmt: skip
    assert step.op_names[inputs(step, step.op_names.index("u1"))[1][0]] == "g1/sum@1"
    groups = {name: step.colocation[op] for op, name in enumerate(step.op_names)}
    assert (groups["w1"], groups["g1/sum@1"], groups["f1@0"], groups["f0@0"]) == ("w1", "w1", None, "@r0")


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"replicas": 9}, "replicas: 9 are more than the 8 micro-batches of the step; each has one"),
        ({"replicas": 0}, "replicas: 0 is no number of replicas; at least 1"),
        ({"shares": (4, 3)}, r"shares: \(4, 3\) sum to 7, not to the 8 micro-batches of the step"),
        ({"shares": (8, 0)}, r"shares: \(8, 0\) are no numbers of micro-batches; each replica has at least 1"),
        ({"shares": (4, 4), "replicas": 3}, r"shares: \(4, 4\) are those of 2 replicas, not of 3"),
        ({"one_home": ("a",)}, "one_home: a step of one replica has every variable at one home; say replicas, too"),
        ({"replicas": 2, "copies": "fetched"}, "copies: 'fetched' is for weights with one home, in a step of one replica"),
    ],
)  # fmt: skip
def test_what_is_no_form_of_a_step_is_refused_in_one_line(fields, line):
    with pytest.raises(ValueError, match=f"^{line}$"):
        Parallelism(8, **fields)


def test_a_layer_without_a_variable_has_no_home():
    with pytest.raises(ValueError, match=r"^one_home: 'layer\.7' matches the layer of no variable$"):
        replicas(layered(2), [1, 1], one_home=["layer.7"])


def test_rings_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(gathering, "MAX_OPS", 2 * 5 * 11 - 1)  # 5 x 11 ops a ring
    line = "replicas: the rings of 5 for 2 buckets make 110 ops, more than the 109 that a graph may have"
    with pytest.raises(ValueError, match=f"^{line}$"):
        replicas(layered(2), [1] * 5)
    monkeypatch.setattr(gathering, "MAX_OPS", 2 * 5 * 11)
    assert sum(name.startswith("bucket") for name in replicas(layered(2), [2] * 5).op_names) == 2 * 5 * 10  # nothing to flatten


def test_only_a_step_of_one_replica_fetches():
    with pytest.raises(ValueError, match=r"^copies: 'fetched' is for weights with one home, in a step of one replica$"):
        replicas(layered(1), [1, 1], "fetched")
