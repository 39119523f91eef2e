"""Ranks of the published example, schedules by hand, and what list scheduling must not get wrong."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op
from support.published import topcuoglu, without_waiting

from gnnplace.baselines.heft import heft
from gnnplace.baselines.scheduling.instance import Guide, instance
from gnnplace.baselines.scheduling.list_schedule import LOADS, MESSAGES, OWN_END, schedule_units
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import allowed, units

RANKS = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]


def schedule(posed: Problem, view: int = OWN_END) -> tuple[list[int], int]:
    made = units(posed.graph, "ops")
    guide = Guide(sequence(posed.graph, upward_rank_ns(posed)))
    device, length = schedule_units(instance(posed, made, allowed(posed, made), guide), view)
    return device[made.unit].tolist(), length


def test_published_ranks():
    assert upward_rank_ns(topcuoglu()).round(3).tolist() == RANKS


def test_published_makespan():
    posed = topcuoglu()
    assert without_waiting(posed, Guide(sequence(posed.graph, upward_rank_ns(posed)))) == 80


def test_published_example_by_hand_with_messages_that_wait():
    """Published: 80, where two messages overlap on a link. Here n1's message to n6 on gpu:1 would wait for the one to n4 until 32,
    so n6 goes to gpu:2 (38-47); n10 waits on gpu:1 for messages of n9 (none), n7 (58-75) and n8 (75-86).
    """
    assert schedule(topcuoglu()) == ([2, 0, 2, 1, 2, 2, 0, 0, 1, 1], 93)


def test_an_op_is_inserted_into_a_gap():
    """gpu:1 waits from 0 to 60 for `second`; `late` has the lowest rank and fits there."""
    times = {"first": (10, 99), "second": (99, 20), "third": (99, 30), "late": (200, 40)}
    ops = [Op(name, "Op", (Output(50),), time_ns={"gpu:0": a, "gpu:1": b}) for name, (a, b) in times.items()]
    posed = problem(ComputationGraph.from_ops("gap", ops, [(0, 0, 1), (1, 0, 2)]), equal_gpus(2))
    assert schedule(posed) == ([0, 1, 1, 1], 110)


@pytest.mark.parametrize("view", [OWN_END, MESSAGES, LOADS])
def test_of_equal_devices_the_first_is_taken(view):
    assert schedule(chains(1, 2, 3), view)[0] == [0, 0]


def test_an_output_is_sent_once_and_messages_take_turns():
    """a -> three consumers that only gpu:1 runs fast: one message of 100, sent once; b's message of 100 waits for it."""

    def fast_on(device: int) -> dict[str, int]:
        return {"gpu:0": 1 if device == 0 else 10**6, "gpu:1": 1 if device == 1 else 10**6}

    ops = [Op("a", "Op", (Output(100),), time_ns=fast_on(0)), Op("b", "Op", (Output(100),), time_ns=fast_on(0))]
    ops += [Op(f"c{i}", "Op", (), time_ns=fast_on(1)) for i in range(3)]
    posed = problem(ComputationGraph.from_ops("sends", ops, [(0, 0, 2), (0, 0, 3), (1, 0, 4)]), equal_gpus(2))
    assert schedule(posed) == ([0, 0, 1, 1, 1], 202)
    assert simulate(posed, [heft(posed, simulate, units_name="ops")])[0].step_time_ns == 202


def test_a_transfer_occupies_the_channel_of_its_receiver_too():
    """Either output leaves gpu:0 or gpu:1 for 20 ns at 10; gpu:2 receives them one after the other, until 50 and 70."""
    devices = tuple(Device(f"gpu:{i}", "gpu", 10**9, 10**9, 10**9) for i in range(3))
    links = tuple(Link(f"gpu:{i}", "gpu:2", 10**9, receive_channel="in") for i in range(2))
    ops = [Op(f"o{i}", "Op", (Output(20),), time_ns={f"gpu:{i}": 10}) for i in range(2)]
    ops += [Op(f"use{i}", "Op", (), time_ns={"gpu:2": 1}) for i in range(2)]
    posed = problem(ComputationGraph.from_ops("g", ops, [(0, 0, 2), (1, 0, 3)]), Cluster("receiver", devices, links))
    assert schedule(posed) == ([0, 1, 2, 2], 71)
    assert simulate(posed, [heft(posed, simulate, units_name="ops")])[0].step_time_ns == 71


def joined(order: list[int], links: tuple[Link, ...]) -> Problem:
    """`both` reads what gpu:0 and gpu:1 made, in some order, and is faster on gpu:1; an op may overtake another on its device."""
    devices = tuple(Device(f"gpu:{i}", "gpu", 10**9, 10**9, 10**9, streams=2) for i in range(2))
    ops = [Op(f"on{i}", "Op", (Output(20),), time_ns={f"gpu:{i}": 30}) for i in range(2)]
    ops.append(Op("both", "Op", (), time_ns={"gpu:0": 100, "gpu:1": 10}))
    return problem(ComputationGraph.from_ops("joined", ops, [(i, 0, 2) for i in order]), Cluster("apart", devices, links))


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_device_that_an_input_cannot_reach_is_taken_only_where_none_is_better(order: list[int]):
    assert schedule(joined(order, (Link("gpu:1", "gpu:0", 10**9),))) == ([0, 1, 0], 150)
    assert schedule(joined(order, (Link("gpu:0", "gpu:1", 10**9),))) == ([0, 1, 1], 60)
    assert schedule(joined(order, ())) == ([0, 1, 1], 40)  # what can't arrive is left out, what can is waited for


@pytest.mark.parametrize(("view", "expected"), [(OWN_END, ([0, 0, 1], 26)), (MESSAGES, ([0, 0, 0], 30)), (LOADS, ([0, 0, 0], 30))])
def test_a_message_costs_those_who_wait_for_its_channel(view: int, expected: tuple[list[int], int]):
    """b follows a at 20 on gpu:0; c could end there at 30, or behind a message of 6 on gpu:1 at 26."""
    ops = [Op("a", "Op", (Output(6),), time_ns={"gpu:0": 10}), op("b", 10), op("c", 10)]
    assert schedule(problem(ComputationGraph.from_ops("g", ops, [(0, 0, 1), (0, 0, 2)]), equal_gpus(2)), view) == expected


@pytest.mark.parametrize(("wait", "home"), [(5, 0), (6, 1)])
def test_all_that_a_unit_takes_counts_once(wait: int, home: int):
    """The unit of `first` could start on gpu:0 when b has run for `wait` ns, or on gpu:1 behind a message of 1; in all it takes 1 + 3 ns
    of messages, the 3 for two of its ops.
    """
    ops = [
        Op("a", "Op", (Output(1), Output(3)), time_ns={"gpu:0": 10}),
        Op("b", "Op", time_ns={"gpu:0": wait}),
        Op("rank", "Op", time_ns={"gpu:2": 1000}),
    ]
    ops += [op("first", 100, colocation="x"), *(op(name, 5, colocation="x") for name in ("second", "third"))]
    posed = problem(ComputationGraph.from_ops("g", ops, [(0, 0, 1), (0, 0, 3), (0, 1, 4), (0, 1, 5), (1, -1, 2)]), equal_gpus(3))
    assert schedule(posed, MESSAGES)[0][3] == home


@pytest.mark.parametrize(("view", "expected"), [(OWN_END, ([0, 0, 0], 155)), (MESSAGES, ([0, 0, 0], 155)), (LOADS, ([0, 1, 0], 157))])
def test_the_load_that_earlier_units_will_bring(view: int, expected: tuple[list[int], int]):
    """p and q stand together, q behind r: 100 ns that gpu:0 has yet to run when r is placed."""
    ops = [op("p", 5, colocation="x"), op("r", 50), op("q", 100, colocation="x")]
    assert schedule(problem(ComputationGraph.from_ops("g", ops, [(0, 0, 1), (1, 0, 2)]), equal_gpus(2)), view) == expected


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_k_equal_chains_use_k_devices(devices: int):
    posed = chains(devices, 6, devices)
    assert simulate(posed, [heft(posed, simulate, units_name="ops")])[0].step_time_ns == 6000


def test_persistent_memory_is_not_exceeded_where_it_need_not():
    ops = [Op(f"v{i}", "Variable", persistent_bytes=60, time_ns={"gpu": 10, "cpu": 10}) for i in range(3)]
    posed = problem(ComputationGraph.from_ops("memory", ops, []), equal_gpus(3, memory_bytes=100))
    assert sorted(schedule(posed)[0]) == [0, 1, 2]


def test_variables_stand_with_their_first_consumer():
    """Two variables without cost are read by ops that must be on different devices."""
    ops = [Op(f"v{i}", "Variable", (Output(10**6),), kernel=False, persistent_bytes=10**6) for i in range(2)]
    ops += [Op(f"use{i}", "Op", (), time_ns={f"gpu:{i}": 10, f"gpu:{1 - i}": 10**5}) for i in range(2)]
    posed = problem(ComputationGraph.from_ops("variables", ops, [(0, 0, 2), (1, 0, 3)]), equal_gpus(2))
    assert schedule(posed)[0] == [0, 1, 0, 1]


def test_streams_run_side_by_side():
    devices = (Device("gpu:0", "gpu", 10**9, 1, 1, streams=2),)
    posed = problem(ComputationGraph.from_ops("bag", [op(f"o{i}") for i in range(4)], []), Cluster("one", devices, ()))
    assert schedule(posed) == ([0, 0, 0, 0], 20)


def test_the_estimate_of_a_graph_of_many_gaps_stays_a_schedule():
    """More gaps than are kept: the estimate may not fall below the work of a device."""
    posed = chains(1, 3000, 2, time_ns=3, size=1)
    device, length = schedule(posed)
    assert length >= np.bincount(device).max() * 3
