"""m-SCT: favourite children by hand, and devices that wait for them."""

from __future__ import annotations

import numpy as np
import pytest
from support.earliest_first import posed, schedule
from support.graphs import equal_gpus, op

from gnnplace.baselines import baechi as module
from gnnplace.baselines.baechi import favourite_children, favourite_consumers, m_sct, relaxed
from gnnplace.graph import NONE, Op, Output
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import units


def solved(times: list[float], edges: list[tuple[int, int, float]]) -> list[float]:
    src, dst, message = zip(*edges, strict=True)
    ends = np.array(src, dtype=np.int32), np.array(dst, dtype=np.int32)
    return relaxed(np.array(times), *ends, np.array(message)).round(6).tolist()


def test_one_child_is_the_favourite():
    """w >= 20 + 20 x_a and w >= 20 + x_b with x_a + x_b >= 1: equal at x_a = 1/21."""
    assert solved([10.0, 10.0, 10.0], [(0, 1, 20.0), (0, 2, 1.0)]) == pytest.approx([1 / 21, 20 / 21], abs=1e-5)


def test_one_parent_has_the_favourite():
    """5 x_a = 8 x_b with x_a + x_b >= 1: neither is below 0.1."""
    assert solved([10.0, 10.0, 10.0], [(0, 2, 5.0), (1, 2, 8.0)]) == pytest.approx([8 / 13, 5 / 13], abs=1e-5)


def test_a_chain_is_all_favourites():
    assert solved([10.0, 10.0, 10.0], [(0, 1, 5.0), (1, 2, 8.0)]) == [0, 0]


def test_off_the_longest_path_the_mean_start_decides():
    """The chain of 100 binds w; of the short op's children the one with the longer message starts without it."""
    found = solved([1.0, 1.0, 1.0, 100.0], [(0, 1, 9.0), (0, 2, 2.0)])
    assert found == [0, 1]


def test_favourites_of_a_problem_are_rounded():
    fork = posed([op("r", 10), op("a", 10), op("b", 10)], [(0, 0, 1), (0, 0, 2)], equal_gpus(2))
    assert favourite_children(fork, units(fork.graph, "ops")).tolist()[1:] == [NONE, NONE]
    ops = [Op("r", "Op", (Output(1), Output(20)), time_ns={"gpu": 10}), op("a", 10), op("b", 10)]
    sends = posed(ops, [(0, 0, 1), (0, 1, 2)], equal_gpus(2))
    assert favourite_children(sends, units(sends.graph, "ops")).tolist() == [2, NONE, NONE]
    joins = posed([op("a", 10, 5), op("b", 10, 8), op("j", 10)], [(0, 0, 2), (1, 0, 2)], equal_gpus(2))
    assert favourite_children(joins, units(joins.graph, "ops")).tolist() == [NONE, NONE, NONE]
    alone = posed(ops, [(0, 0, 1), (0, 1, 2)], equal_gpus(1))
    assert favourite_children(alone, units(alone.graph, "ops")).tolist() == [NONE, NONE, NONE]


def test_of_two_consumers_in_a_favourite_unit_the_higher_rank_is_awaited():
    ops = [op("a", 10, 5), op("low", 10, colocation="x"), op("high", 20, colocation="x"), op("other", 99)]
    given = posed(ops, [(0, 0, 1), (0, 0, 2), (0, 0, 3)], equal_gpus(2))
    cells = units(given.graph, "ops")
    child = np.full(cells.num_units, NONE, dtype=np.int64)
    child[cells.unit[0]] = cells.unit[1]
    assert favourite_consumers(given, cells, child).tolist() == [2, NONE, NONE, NONE]


def waits(message: int):
    """r (gpu:0, 0-10) -> a, which also needs q (gpu:1, 0-12), and -> x, with a message of so many bytes."""
    ops = [Op("r", "Op", (Output(20), Output(message)), time_ns={"gpu:0": 10}), Op("q", "Op", (Output(1),), time_ns={"gpu:1": 12})]
    ops += [op("a", 30), op("x", 100)]
    return posed(ops, [(0, 0, 2), (1, 0, 2), (0, 1, 3)], equal_gpus(2))


def test_a_device_waits_for_the_favourite_child():
    """a could start on gpu:0 at 13, on gpu:1 at 30. Without favourites x starts on gpu:0 at 10 and a on gpu:1; with a as r's favourite,
    gpu:0 waits until 13, and x starts behind a at 43 since its message of 50 would arrive at 60.
    """
    assert schedule(waits(50)) == ([0, 1, 1, 0], 110)
    assert schedule(waits(50), {0: 2}) == ([0, 1, 0, 0], 143)


def test_an_urgent_op_need_not_wait():
    """x could be on gpu:1 by 11, before a starts at 13: it starts on gpu:0 at 11, and a on gpu:1."""
    assert schedule(waits(1), {0: 2}) == ([0, 1, 1, 0], 111)


def test_a_child_that_starts_earlier_elsewhere_is_not_awaited():
    """q's message of 40 makes a start at 52 on gpu:0 and at 30 on gpu:1."""
    ops = [Op("r", "Op", (Output(20), Output(50)), time_ns={"gpu:0": 10}), Op("q", "Op", (Output(40),), time_ns={"gpu:1": 12})]
    given = posed([*ops, op("a", 30), op("x", 100)], [(0, 0, 2), (1, 0, 2), (0, 1, 3)], equal_gpus(2))
    assert schedule(given, {0: 2}) == ([0, 1, 1, 0], 110)


def test_many_units_have_the_favourites_of_coarse_ones(monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(module, "MAX_CELLS", 3)
    monkeypatch.setattr(module, "favourite_children", lambda given, cells: asked.append(cells.name) or favourite_children(given, cells))
    for count in (3, 4):
        given = posed([op(f"o{i}", 10, 5) for i in range(count)], [(i, 0, i + 1) for i in range(count - 1)], equal_gpus(2))
        assert simulate(given, [m_sct(given, simulate, units_name="ops")])[0].step_time_ns == 10 * count
    assert asked == ["ops", "coarse"]
