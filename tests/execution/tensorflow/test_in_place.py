"""Which buffers element-wise ops write over, by hand and by what they may not change."""

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link

from gnnplace.costs.roofline import problem
from gnnplace.execution.tensorflow.in_place import in_place
from gnnplace.graph import NONE, ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.schedules.in_order import in_order
from gnnplace.simulator.simulator import simulate

FLOAT = {"dtype": "float32"}


def op(name: str, size: int, kind: str = "elementwise", **columns) -> Op:
    return Op(name, "Mul", (Output(size, **FLOAT),), canonical_kind=kind, time_ns={"gpu": 10}, **columns)


def aliases(ops: list[Op], edges: list[tuple[int, int, int]], device: list[int], order: list[int] | None = None) -> list[int]:
    graph = ComputationGraph.from_ops("by-hand", ops, edges)
    placed = np.array(device, np.int32)
    return in_place(graph, placed, np.array(range(len(ops)) if order is None else order, np.int32)).output_alias.tolist()


def test_a_chain_shares_one_buffer():
    ops, edges = [op("x", 8, "matmul"), op("y", 8), op("z", 8), op("w", 8, "matmul")], [(0, 0, 1), (1, 0, 2), (2, 0, 3)]
    assert aliases(ops, edges, [0, 0, 0, 0]) == [NONE, 0, 1, NONE]


def test_the_last_user_may_and_those_before_it_may_not():
    ops, edges = [op("x", 8, "matmul"), op("y", 8), op("z", 8)], [(0, 0, 1), (0, 0, 2)]
    assert aliases(ops, edges, [0, 0, 0]) == [NONE, NONE, 0]
    assert aliases(ops, edges, [0, 0, 0], [0, 2, 1]) == [NONE, 0, NONE]


def test_what_an_earlier_op_took_over_is_used_until_its_own_last_use():
    ops, edges = [op("x", 8, "matmul"), op("y", 8), op("z", 8), op("w", 8)], [(0, 0, 1), (1, 0, 2), (1, 0, 3)]
    assert aliases(ops, edges, [0] * 4) == [NONE, 0, NONE, 1]


@pytest.mark.parametrize(
    ("ops", "device"),
    [
        ([op("x", 8, "matmul"), op("y", 4)], [0, 0]),  # another size
        ([op("x", 8, "matmul"), op("y", 8, "matmul")], [0, 0]),  # not element-wise
        ([Op("x", "Const", (Output(8, **FLOAT),), time_ns={"gpu": 1}), op("y", 8)], [0, 0]),
        ([Op("x", "Mul", (Output(8, dtype="int32"),), time_ns={"gpu": 1}), op("y", 8)], [0, 0]),
        ([Op("x", "Mul", (Output(8, is_result=True, **FLOAT),), time_ns={"gpu": 1}), op("y", 8)], [0, 0]),
    ],
)
def test_what_may_not_be_written_over(ops, device):
    assert aliases(ops, [(0, 0, 1)], device) == [NONE, NONE]


def test_what_is_received_may_be_written_over():
    ops, edges = [Op("x", "Const", (Output(8, **FLOAT),), time_ns={"gpu": 1}), op("y", 8), op("z", 8)], [(0, 0, 1), (0, 0, 2)]
    assert aliases(ops, edges, [0, 1, 1]) == [NONE, NONE, 0]  # a copy even of a constant, by its last user there
    assert aliases(ops, edges, [0, 1, 2], [0, 1, 2]) == [NONE, NONE, NONE]  # either device waits for it


def test_what_a_device_waits_for_is_not_written_over():
    ops = [op("x", 8, "matmul"), op("y", 8), op("beside", 4, "matmul")]
    assert aliases(ops, [(0, 0, 1)], [0, 1, 1], [0, 1, 2]) == [NONE, NONE, NONE]
    assert aliases(ops, [(0, 0, 1)], [0, 1, 1], [2, 0, 1]) == [NONE, NONE, NONE]  # what it did before is over
    assert aliases(ops, [(0, 0, 1)], [0, 1, 1], [0, 2, 1]) == [NONE, 0, NONE]


def test_what_an_op_sends_is_made_where_the_network_takes_it_from():
    ops, edges = [op("x", 8, "matmul"), op("y", 8), op("there", 8, "matmul")], [(0, 0, 1), (1, 0, 2)]
    assert aliases(ops, edges, [0, 0, 0]) == [NONE, 0, NONE]
    assert aliases(ops, edges, [0, 0, 1]) == [NONE, NONE, NONE]
    assert aliases(ops, [*edges, (0, 0, 2)], [0, 0, 1]) == [NONE, 0, NONE]  # over what was sent
    more = [*ops, op("beside", 4, "matmul")]
    assert aliases(more, edges, [0, 1, 0, 1], [0, 3, 1, 2]) == [NONE, 0, NONE, NONE]  # over what was received


def test_what_was_sent_may_be_written_over():
    ops, edges = [op("x", 8, "matmul"), op("there", 8, "matmul"), op("y", 8)], [(0, 0, 1), (0, 0, 2)]
    assert aliases(ops, edges, [0, 1, 0]) == [NONE, NONE, 0]


def test_a_step_takes_as_long_and_less_memory():
    generator, smaller = np.random.default_rng(0), 0
    both = gpus(link(0, 1), link(1, 0))
    cluster = replace(both, devices=tuple(replace(device, received="outputs") for device in both.devices))
    for _ in range(60):
        ops = [op(str(i), int(generator.choice([8, 16])), str(generator.choice(["elementwise", "matmul"]))) for i in range(12)]
        edges = [(int(generator.integers(max(0, j - 2), j)), 0, j) for j in range(1, 12)]
        graph, device = ComputationGraph.from_ops("random", ops, edges), generator.integers(0, 2, 12).astype(np.int32)
        order, results = np.arange(12, dtype=np.int32), []
        for each in (graph, in_place(graph, device, order)):
            (result,) = simulate(problem(in_order(each, device, order), cluster), [Placement(device, "fifo")])
            results.append(result)
        assert results[0].step_time_ns == results[1].step_time_ns
        assert (results[1].peak_memory_bytes <= results[0].peak_memory_bytes).all()
        smaller += (results[1].peak_memory_bytes < results[0].peak_memory_bytes).any()
    assert smaller >= 3
