"""Observations of partial placements, worked by hand on three units and two equal GPUs at 1 byte a nanosecond."""

import numpy as np
import pytest
from support.graphs import equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies.placing.observations import OBSERVATIONS, PartialPlacements
from gnnplace.policies.placing.unit_tables import unit_tables
from gnnplace.schedules.paths import decision_order
from gnnplace.units.units import units


def fork():
    """a (100 ns, 50 bytes) feeds b (300 ns) and c (200 ns), which holds 500 persistent bytes."""
    ops = [
        Op("a", "Op", (Output(50),), time_ns={"gpu": 100}, block=0),
        Op("b", "Op", (Output(0),), time_ns={"gpu": 300}, block=1),
        Op("c", "Op", (Output(0),), time_ns={"gpu": 200}, block=1, persistent_bytes=500),
    ]
    return problem(ComputationGraph.from_ops("fork", ops, [(0, 0, 1), (0, 0, 2)]), equal_gpus(2, memory_bytes=1000))


def partial(samples=1):
    made_problem = fork()
    made = units(made_problem.graph, "ops")
    order = decision_order(made_problem, made)
    assert order.tolist() == [0, 1, 2]
    return PartialPlacements(unit_tables(made_problem, made, order), samples)


def column(observed, name):
    return observed[..., OBSERVATIONS.index(name)]


def test_ideal_time_is_all_work_on_all_devices():
    placements = partial()
    assert placements.scales.ideal_ns == 300
    assert placements.scales.unit_ns == 200


def test_observations_after_two_units_by_hand():
    placements = partial()
    placements.observe()
    placements.place(np.array([0]))  # a on gpu:0, done at 100
    placements.observe()
    placements.place(np.array([0]))  # b on gpu:0, done at 400
    seen = placements.observe()[0]  # c: on gpu:0 after b, on gpu:1 once a's 50 bytes have come
    assert column(seen, "load") == pytest.approx([(400 + 200) / 300, 200 / 300])
    assert column(seen, "load_above_least") == pytest.approx([400 / 300, 0])
    assert column(seen, "units_above_least") == pytest.approx([np.log1p(400 / 200), 0])
    assert column(seen, "finish") == pytest.approx([600 / 300, (100 + 50 + 200) / 300])
    assert column(seen, "finish_above_earliest") == pytest.approx([np.log1p(250 / 200), 0])
    assert column(seen, "bytes_shared") == pytest.approx([np.log1p(50 / 200), 0])
    assert column(seen, "bytes_to_move") == pytest.approx([0, np.log1p(50 / 200)])
    assert column(seen, "persistent") == pytest.approx([0.5, 0.5])
    assert column(seen, "memory") == pytest.approx([0.55, 0.5])
    assert column(seen, "block_share") == pytest.approx([1, 0])
    assert column(seen, "in_use") == pytest.approx([1, 0])


def test_what_a_device_was_sent_moves_once():
    """A weight of 50 bytes feeds three cells; whether it or they are placed first, its copy on the other GPU is there for the last."""
    ops = [Op(name, "Op", (Output(size),), time_ns={"gpu": 100}) for name, size in (("w", 50), ("b", 0), ("c", 0), ("d", 0))]
    made_problem = problem(ComputationGraph.from_ops("cells", ops, [(0, 0, i) for i in (1, 2, 3)]), equal_gpus(2))
    made = units(made_problem.graph, "ops")
    for order in ([0, 1, 2, 3], [1, 2, 0, 3]):
        placements = PartialPlacements(unit_tables(made_problem, made, np.array(order)), 1)
        for unit in order[:3]:
            seen = placements.observe()[0].copy()
            placements.place(np.array([0 if unit == 0 else 1]))  # the weight on gpu:0, two cells on gpu:1
        if order[2] == 0:  # two cells wait for the weight on gpu:1: one copy goes there
            assert column(seen, "bytes_to_move") == pytest.approx([np.log1p(50 / 100), 0])
            assert column(seen, "bytes_shared") == pytest.approx([0, np.log1p(50 / 100)])
        last = placements.observe()[0]
        assert column(last, "bytes_to_move") == pytest.approx([0, 0])
        assert column(last, "bytes_shared") == pytest.approx([np.log1p(50 / 100)] * 2)
        assert column(last, "sending") == pytest.approx([50 / placements.scales.ideal_ns, 0])


def test_replay_sees_what_was_seen_step_by_step():
    device = np.random.default_rng(0).integers(0, 2, (5, 3))
    stepwise = partial(5)
    seen = []
    for step in range(3):
        seen.append(stepwise.observe().copy())
        stepwise.place(device[:, step])
    np.testing.assert_array_equal(partial(5).replay(device), np.stack(seen, axis=1))
