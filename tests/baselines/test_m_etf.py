"""m-ETF by hand: earliest starts, messages that make them later, memory."""

from __future__ import annotations

import pytest
from support.earliest_first import posed, schedule
from support.graphs import equal_gpus, op

from gnnplace.baselines.baechi import m_etf
from gnnplace.cluster import Cluster, Device
from gnnplace.graph import Op, Output
from gnnplace.simulator.simulator import simulate


def test_equal_starts_go_by_rank():
    """30 and 20 start at 0, 10 behind 20."""
    assert schedule(posed([op("a", 10), op("b", 20), op("c", 30)], [], equal_gpus(2))) == ([1, 1, 0], 30)


def test_it_takes_the_earliest_start_not_the_earliest_finish():
    """Both start at 0: the first where it is fast, the second where it is slow, although it could end at 20 behind the first."""
    ops = [Op(name, "Op", time_ns={"gpu:0": 10, "gpu:1": 1000}) for name in "ab"]
    assert schedule(posed(ops, [], equal_gpus(2))) == ([0, 1], 1000)


@pytest.mark.parametrize(("message", "expected"), [(5, ([0, 0, 1], 25)), (50, ([0, 0, 0], 30))])
def test_messages_count(message: int, expected: tuple[list[int], int]):
    """a (0-10), b behind it; c behind b at 20, or after its message at 15 or 60."""
    ops = [op("a", 10, message), op("b", 10), op("c", 10)]
    assert schedule(posed(ops, [(0, 0, 1), (0, 0, 2)], equal_gpus(2))) == expected


def test_an_op_is_offered_when_its_own_inputs_arrive():
    """a ends at 10: x, which is first, would wait for 1000 bytes elsewhere and stays; y has its byte on gpu:1 at 11."""
    ops = [Op("a", "Op", (Output(1000), Output(1)), time_ns={"gpu:0": 10}), op("x", 100), op("y", 50)]
    assert schedule(posed(ops, [(0, 0, 1), (0, 1, 2)], equal_gpus(2))) == ([0, 0, 1], 110)


def test_messages_that_wait_for_their_channel_make_starts_later():
    """a ends at 10 and sends two messages of 5: b1 starts on gpu:1 at 15, b2 could on gpu:2 at 20. There, e ends at 17 and d goes first,
    though b2 has the higher rank and seemed ready by 15; b2 starts behind b0 at 111.
    """
    ops = [Op("a", "Op", (Output(5), Output(5), Output(5)), time_ns={"gpu:0": 10}), *(op(f"b{i}", 101) for i in range(3))]
    ops += [Op("e", "Op", (Output(0),), time_ns={"gpu:2": 17}), Op("d", "Op", time_ns={"gpu:2": 100})]
    given = posed(ops, [(0, 0, 1), (0, 1, 2), (0, 2, 3), (4, 0, 5)], equal_gpus(3))
    assert schedule(given) == ([0, 0, 1, 0, 2, 2], 212)


def test_streams_run_side_by_side():
    devices = (Device("gpu:0", "gpu", 10**9, 1, 1, streams=2),)
    assert schedule(posed([op(f"o{i}") for i in range(4)], [], Cluster("one", devices, ()))) == ([0, 0, 0, 0], 20)


def test_what_has_no_room_left_when_its_turn_comes_goes_elsewhere():
    """All are ready at 0 on both. `large` takes gpu:0 and `fast` joins it; `late` could start there at 20, but only gpu:1 has room."""
    ops = [op("large", 15, persistent_bytes=60), op("slow", 100), op("fast", 5, persistent_bytes=30), op("late", 4, persistent_bytes=30)]
    assert schedule(posed(ops, [], equal_gpus(2, memory_bytes=100))) == ([1, 0, 1, 0], 104)


def test_what_fits_nowhere_is_placed_all_the_same():
    """o2 (rank 17) and o0 take a device each; o1 starts behind o2 as HEFT would have it, `behind` after a message of 1 at 11 on gpu:1."""
    ops = [op(f"o{i}", 10, persistent_bytes=60) for i in range(3)]
    given = posed([*ops, op("behind", 7)], [(2, 0, 3)], equal_gpus(2, memory_bytes=100))
    assert schedule(given) == ([1, 0, 0, 1], 20)
    assert simulate(given, [m_etf(given, simulate, units_name="ops")])[0].infeasible is not None


def test_what_the_backward_pass_reads_counts_where_persistent_bytes_alone_are_not_enough():
    """Both layers start earliest on gpu:0, where their activations of 60 bytes stay until the gradients; 100 bytes hold one of them."""
    layers = [Op(f"layer {i}", "Op", (Output(60), Output(1)), time_ns={"gpu": 10}, phase="forward") for i in range(2)]
    ops = layers + [op(f"gradient {i}", 10, 1, phase="backward_data") for i in (1, 0)]
    edges = [(0, 1, 1), (0, 0, 3), (1, 0, 2), (1, 1, 2), (2, 0, 3)]
    tight, roomy = (posed(ops, edges, equal_gpus(2, memory_bytes=size, bandwidth=10**6)) for size in (100, 200))
    assert schedule(tight)[0] == schedule(roomy)[0] == [0, 0, 0, 0]
    assert m_etf(roomy, simulate, units_name="ops").device.tolist() == [0, 0, 0, 0]
    assert m_etf(tight, simulate, units_name="ops").device.tolist()[:2] == [0, 1]


def test_variables_stand_with_the_first_consumer_that_starts():
    """`early` is next behind the variable (0-1) on gpu:1; `late`, of higher rank, waits for `before` and a message of 1 ns. The variable's
    own message would take 10^6 ns to gpu:0.
    """
    ops = [Op("v", "Variable", (Output(10**6),), kernel=False), Op("before", "Op", (Output(0),), time_ns={"gpu:0": 50})]
    ops += [Op("late", "Op", time_ns={"gpu": 100}), Op("early", "Op", time_ns={"gpu:1": 20})]
    given = posed(ops, [(0, 0, 2), (0, 0, 3), (1, 0, 2)], equal_gpus(2))
    assert schedule(given) == ([1, 0, 1, 1], 151)
