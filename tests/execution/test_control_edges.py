"""Control edges as executors run them, by hand: which are sent, and that a graph in order runs as it was simulated."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.by_hand import gpus, link
from support.random_problems import random_case
from support.slow import slow

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.execution.control_edges import control_messages, needed
from gnnplace.execution.workload import plan
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.placement import Placement, missing_link
from gnnplace.problems import Problem
from gnnplace.schedules.in_order import in_order
from gnnplace.simulator.simulator import simulate


def graph_of(num_ops: int, edges: list[tuple[int, int, int]]) -> ComputationGraph:
    ops = [Op(f"op{i}", "Mul", (Output(8),), time_ns={"gpu": 10}) for i in range(num_ops)]
    return ComputationGraph.from_ops("by-hand", ops, edges)


def sent(graph: ComputationGraph, device: list[int], order: list[int]) -> set[tuple[int, int]]:
    """The control edges between devices that are needed."""
    placed = np.array(device, np.int32)
    away = needed(graph, placed, np.array(order, np.int32)) & (graph.edge_output == CONTROL)
    edges = [(int(graph.edge_src[edge]), int(graph.edge_dst[edge])) for edge in np.flatnonzero(away)]
    return {(src, dst) for src, dst in edges if device[src] != device[dst]}


def test_of_several_ops_of_a_device_the_last_is_waited_for():
    graph = graph_of(4, [(0, CONTROL, 3), (1, CONTROL, 3), (2, CONTROL, 3)])
    assert sent(graph, [0, 0, 0, 1], [0, 1, 2, 3]) == {(2, 3)}
    assert sent(graph, [0, 0, 0, 1], [2, 0, 1, 3]) == {(1, 3)}
    assert sent(graph, [0, 2, 0, 1], [0, 1, 2, 3]) == {(1, 3), (2, 3)}


def test_data_of_a_later_op_says_it_too_and_of_an_earlier_op_does_not():
    later, earlier = graph_of(3, [(0, CONTROL, 2), (1, 0, 2)]), graph_of(3, [(0, 0, 2), (1, CONTROL, 2)])
    assert sent(later, [0, 0, 1], [0, 1, 2]) == set()
    assert sent(earlier, [0, 0, 1], [0, 1, 2]) == {(1, 2)}


def test_what_a_third_device_has_waited_for_is_known_to_those_that_wait_for_it():
    graph = graph_of(3, [(0, 0, 1), (1, 0, 2), (0, CONTROL, 2)])
    assert sent(graph, [0, 1, 2], [0, 1, 2]) == set()


@given(st.data())
def test_every_edge_still_holds_and_none_is_sent_for_nothing(data):
    num_ops, num_devices = data.draw(st.integers(2, 10)), data.draw(st.integers(1, 3))
    pairs = [(i, j) for j in range(num_ops) for i in range(j)]
    edges = [(i, output, j) for i, j in pairs if (output := data.draw(st.sampled_from([None, None, 0, CONTROL]))) is not None]
    device = data.draw(st.lists(st.integers(0, num_devices - 1), min_size=num_ops, max_size=num_ops))
    graph, order = graph_of(num_ops, edges), list(range(num_ops))
    chosen = sent(graph, device, order)
    own = [(i, j) for i, j in pairs if device[i] == device[j]]
    given_edges = [(i, j) for i, output, j in edges if device[i] == device[j] or output != CONTROL]
    before = nx.transitive_closure(nx.DiGraph([*own, *given_edges, *chosen]))
    assert all(before.has_edge(i, j) for i, _, j in edges)
    for edge in chosen:
        others = nx.DiGraph([*own, *given_edges, *(chosen - {edge})])
        others.add_nodes_from(edge)
        assert not nx.has_path(others, *edge)


def test_a_message_takes_the_links_overhead_and_no_memory():
    graph = graph_of(3, [(0, CONTROL, 2), (1, CONTROL, 2)])
    device, order = np.array([0, 0, 1], np.int32), np.arange(3, dtype=np.int32)
    cluster = gpus(link(0, 1, overhead_ns=7, latency_ns=2))
    free = simulate(problem(in_order(graph, device, order), cluster), [Placement(device, "fifo")])[0]
    messages = control_messages(graph, device, order)
    taken = simulate(problem(in_order(messages, device, order), cluster), [Placement(device, "fifo")])[0]
    assert (free.step_time_ns, taken.step_time_ns) == (32, 39)
    assert (free.transfers, taken.transfers, taken.transferred_bytes) == (0, 1, 0)
    assert taken.peak_memory_bytes.tolist() == free.peak_memory_bytes.tolist()
    assert messages.op_names == graph.op_names and messages.output_bytes.tolist() == [8, 8, 0, 8]


def test_outputs_keep_their_aliases_and_edges_behind_an_op_with_one_more():
    ops = [
        Op("a", "Mul", (Output(8, dtype="float32", shape=(2,)),)),
        Op("b", "Mul", (Output(4), Output(8, alias_of=(0, 0)))),
        Op("c", "Mul", (Output(2),)),
    ]
    graph = ComputationGraph.from_ops("by-hand", ops, [(0, CONTROL, 2), (0, 0, 1), (1, 1, 2)])
    messages = control_messages(graph, np.array([0, 1, 1], np.int32), np.arange(3, dtype=np.int32))
    edges = zip(messages.edge_src.tolist(), messages.edge_output.tolist(), messages.edge_dst.tolist(), strict=True)
    assert list(edges) == [(0, 0, 1), (1, 1, 2)]  # b's data says that a is done
    alone = control_messages(graph, np.array([0, 0, 1], np.int32), np.arange(3, dtype=np.int32))
    assert alone.output_alias.tolist() == [-1, -1, 0, -1] and alone.shape(0) == (2,)


def in_this_order(made: Problem, device: np.ndarray, order: np.ndarray) -> Problem:
    return Problem(in_order(made.graph, device, order), made.cluster, made.time_ns, made.contended_ns)


@pytest.mark.parametrize("seeds", [40, slow(400)])
def test_the_order_of_a_simulated_step_gives_that_step(seeds: int):
    """Where devices run one op at a time; whatever schedule made the order."""
    compared = 0
    for seed in range(seeds):
        case = random_case(seed)
        made, placement = case.problem(), case.placement()
        if missing_link(made, placement.device) or made.cluster.streams.max() > 1:
            continue
        (simulated,) = simulate(made, [placement], timeline=True)
        ordered = in_this_order(made, placement.device, plan(made, placement, simulated.timeline).order)
        (again,) = simulate(ordered, [Placement(placement.device, "fifo")], timeline=True)
        assert again.timeline.start_ns.tolist() == simulated.timeline.start_ns.tolist(), seed
        assert again.peak_memory_bytes.tolist() == simulated.peak_memory_bytes.tolist()
        compared += made.num_devices > 1
    assert compared > seeds // 8


@pytest.mark.parametrize(("order", "step_ns"), [([0, 2, 1], 12), ([0, 1, 2], 17)])
def test_a_device_waits_for_the_next_op_of_its_order_by_hand(order: list[int], step_ns: int):
    """a on gpu:0 (5) sends to b on gpu:1 (5, after 2 of transfer); c on gpu:1 (5) is ready at once, but may have to wait for b."""
    ops = [Op("a", "Op", (Output(1),), time_ns={"gpu": 5}), Op("b", "Op", time_ns={"gpu": 5}), Op("c", "Op", time_ns={"gpu": 5})]
    devices = tuple(Device(f"gpu:{k}", "gpu", 100, 10**9, 10**9) for k in range(2))
    cluster = Cluster("two", devices, (Link("gpu:0", "gpu:1", 10**9, overhead_ns=1),))
    made, device = problem(ComputationGraph.from_ops("late", ops, [(0, 0, 1)]), cluster), np.array([0, 1, 1], np.int32)
    (result,) = simulate(in_this_order(made, device, np.array(order, np.int32)), [Placement(device, "fifo")])
    assert result.step_time_ns == step_ns
