"""The constraint program is a relaxation: simulated steps break none of its constraints, equal devices and proved bounds included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made, step
from support.every_placement import best_step, some_steps
from support.graphs import equal_gpus, op
from support.slow import slow
from support.tight_problems import crowded_case, tight_case

from gnnplace.baselines.cp_sat.exact import Limit, Start, solve
from gnnplace.baselines.cp_sat.model import LONGEST
from gnnplace.baselines.cp_sat.symmetry import equal_devices, numbers_in_order
from gnnplace.bounds.bounds import least_times
from gnnplace.cluster import Cluster, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

PAIRS = [(a, b) for a in range(3) for b in range(3) if a != b]
AT_ONCE = Limit(0.3)


def keeps(posed: Problem, seed: int, most: int) -> int:
    """Starts from feasible steps in random orders: the search would end in an error if one broke a constraint. Returns how many."""
    try:
        found = some_steps(posed, np.random.default_rng(seed), most)
        for placement, result in found:
            solved = solve(posed, AT_ONCE, start=Start(placement.device, result), least=least_times(posed))
            assert solved.step_time_ns is not None and solved.bound_ns <= solved.step_time_ns <= result.feasible_ns, (seed, placement)
    except ValueError:  # a unit may stand nowhere
        return 0
    return len(found)


@pytest.mark.parametrize("seeds", [10, slow(60)])
@pytest.mark.parametrize("case", [tight_case, crowded_case])
def test_a_simulated_step_in_any_order_breaks_no_constraint(case, seeds):
    assert sum(keeps(case(seed).problem(), seed, 2) for seed in range(seeds)) >= seeds


@pytest.mark.parametrize("seeds", [10, slow(60)])
def test_the_proved_optimum_is_never_above_the_fastest_step_whatever_is_known_beforehand(seeds):
    equal = 0
    for seed in range(seeds):
        posed = crowded_case(seed).problem()
        best = best_step(posed)
        if best is None:
            continue
        least = least_times(posed)
        found = solve(posed, Limit(5.0), least=least)
        assert found.proved and least.step_ns <= found.bound_ns <= best, (seed, found, best)
        equal += found.bound_ns == best
    assert equal >= seeds // 4, equal


def three(*links: Link, **columns: int) -> Problem:
    return made([Op("a", "Op", (Output(5),), time_ns={"gpu": 10})], [], gpus(*links, **columns) if links else equal_gpus(3))


def test_equal_devices_are_one_class():
    assert equal_devices(three()) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("change", "classes"),
    [
        ({}, [[0, 1, 2]]),
        ({(0, 1): {"latency_ns": 1}}, [[0], [1], [2]]),
        ({(0, 1): {"latency_ns": 1}, (1, 0): {"latency_ns": 1}}, [[0, 1], [2]]),
        ({(0, 1): {"overhead_ns": 1}, (0, 2): {"overhead_ns": 1}}, [[0], [1, 2]]),
        ({(0, 1): None, (1, 0): None}, [[0, 1], [2]]),
        ({(0, 1): {"channel": "bus"}, (1, 0): {"channel": "bus"}}, [[0, 1], [2]]),
        ({(a, b): {"channel": f"{min(a, b)}{max(a, b)}"} for a, b in PAIRS}, [[0, 1, 2]]),  # a bus for each pair
        ({(a, b): {"channel": f"{(b - a) % 3}"} for a, b in PAIRS}, [[0, 1, 2]]),  # two rings change places with any two devices
        ({(a, b): {"channel": f"gpu:{a}"} for a, b in PAIRS}, [[0, 1, 2]]),  # each copies by itself
        ({(a, b): {"channel": f"gpu:{a}"} for a, b in PAIRS if a > 0}, [[0], [1, 2]]),
        ({(a, b): {"receive_channel": f"gpu:{b}"} for a, b in PAIRS}, [[0, 1, 2]]),
        ({(a, b): {"receive_channel": "gpu:1"} for a, b in PAIRS if b == 1}, [[0, 2], [1]]),
        ({(0, 1): {"channel": "x"}, (1, 2): {"channel": "x"}, (2, 0): {"channel": "x"}}, [[0], [1], [2]]),
        ({(a, b): {"receive_channel": f"in{a}"} for a, b in PAIRS if b == 2}, [[0, 1], [2]]),
    ],
)
def test_links_and_channels_tell_devices_apart(change, classes):
    links = [replace(link(*pair), **(change.get(pair) or {})) for pair in PAIRS if change.get(pair, {}) is not None]
    assert equal_devices(three(*links)) == classes


@pytest.mark.parametrize("column", [{"memory_bytes": 7}, {"streams": 2}])
def test_memory_and_streams_tell_devices_apart(column):
    cluster = equal_gpus(3)
    unequal = Cluster("unequal", (*cluster.devices[:2], replace(cluster.devices[2], **column)), cluster.links)
    assert equal_devices(problem(ComputationGraph.from_ops("one", [op("a")], []), unequal)) == [[0, 1], [2]]


def test_times_and_legality_tell_devices_apart():
    slower = Op("a", "Op", time_ns={"gpu": 10, "gpu:1": 11})
    nowhere = Op("a", "Op", time_ns={"gpu:0": 10, "gpu:2": 10})
    for one in (slower, nowhere):
        assert equal_devices(problem(ComputationGraph.from_ops("one", [one], []), equal_gpus(3))) == [[0, 2], [1]]


def test_times_beside_others_tell_devices_apart():
    posed = three()
    assert equal_devices(Problem(posed.graph, posed.cluster, posed.time_ns, posed.time_ns * [[1, 2, 1]])) == [[0, 2], [1]]


def test_devices_are_numbered_by_the_first_op_on_each():
    posed = problem(ComputationGraph.from_ops("four", [op(f"o{i}") for i in range(4)], []), equal_gpus(3))
    assert numbers_in_order(posed, np.array([2, 0, 2, 0], dtype=np.int32)).tolist() == [1, 2, 0]
    assert solve(posed, Limit(5.0)).placement.device[0] == 0


def test_what_ends_first_is_sent_first():
    """a (10 ns, 20 bytes) and b (5 ns, 3 bytes) leave gpu:0 in the order of their ends, 10 and 15: c (20 ns) needs b alone, at 33.

    c could start at 18 if b overtook a, and end at 38; d, for a, is short.
    """

    def fixed(name: str, device: int, time_ns: int, *outputs: Output) -> Op:
        return Op(name, "Op", outputs, time_ns={f"gpu:{device}": time_ns})

    ops = [fixed("a", 0, 10, Output(20)), fixed("b", 0, 5, Output(3)), fixed("c", 1, 20), fixed("d", 1, 1)]
    posed = made(ops, [(0, 0, 3), (1, 0, 2), (0, -1, 1)], gpus(link(0, 1)))
    found = solve(posed, Limit(5.0))
    assert found.proved and found.bound_ns == 53 == simulate(posed, [Placement(np.array([0, 0, 1, 1], dtype=np.int32))])[0].step_time_ns


def test_outputs_of_an_op_are_sent_in_order():
    """a's outputs of 20 and 3 bytes leave one after the other; c (20 ns) needs the second: 10 + 20 + 3 + 20."""
    ops = [Op("a", "Op", (Output(20), Output(3)), time_ns={"gpu:0": 10})] + [
        Op(name, "Op", time_ns={"gpu:1": t}) for name, t in (("c", 20), ("d", 1))
    ]
    posed = made(ops, [(0, 1, 1), (0, 0, 2)], gpus(link(0, 1)))
    found = solve(posed, Limit(5.0))
    assert found.proved and found.bound_ns == 53 == simulate(posed, [Placement(np.array([0, 1, 1], dtype=np.int32))])[0].step_time_ns


def sent_by_bus(ops: list[Op], edges: list[tuple[int, int, int]]) -> Problem:
    """Ops of given devices on three GPUs of one memory; a bus leads to the last of them."""
    cluster = gpus(link(0, 2, channel="bus"), link(1, 2, channel="bus"))
    return made(ops, edges, replace(cluster, devices=tuple(replace(device, memory="host") for device in cluster.devices)))


def test_what_lasts_longer_beside_another_op_may_be_sent_last():
    """b lasts 5 ns alone, but 20 beside a (0-10): the bus takes a's 3 bytes at 10 and b's at 20, and c (1 ns) ends at 24.

    In the program b ends at 5 all the same, so the best that it knows is 14: a's bytes leave last, 10-13.
    """
    ops = [Op(name, "Op", (Output(3),), time_ns={f"gpu:{d}": time}) for d, (name, time) in enumerate([("a", 10), ("b", 5), ("c", 1)])]
    alone = sent_by_bus(ops, [(0, 0, 2), (1, 0, 2)])
    posed = Problem(alone.graph, alone.cluster, alone.time_ns, 4 * alone.time_ns)
    result = step(posed, 0, 1, 2)
    assert result.timeline is not None and result.timeline.end_ns.tolist() == [10, 20, 24]
    found = solve(posed, Limit(5.0), start=Start(np.arange(3, dtype=np.int32), result))
    assert found.proved and found.bound_ns == 14


def test_what_ends_first_by_rounding_alone_may_be_sent_last():
    """In units of 3 ns a (0-6) ends at 2, and b (2-7, behind x) at 0 + 1; but the bus takes a's 3 bytes at 6 and b's at 9.

    c (1 ns) waits for both, and for y, so long that units are 3 ns.
    """
    given = [("a", 0, 6), ("x", 1, 2), ("b", 1, 5), ("y", 2, 3 * LONGEST - 1), ("c", 2, 1)]
    ops = [Op(name, "Op", (Output(3),), time_ns={f"gpu:{d}": time}) for name, d, time in given]
    posed = sent_by_bus(ops, [(0, 0, 4), (1, -1, 2), (2, 0, 4), (3, -1, 4)])
    result = step(posed, 0, 1, 1, 2, 2)
    assert result.timeline is not None and result.timeline.transfer_start_ns.tolist() == [6, 9]
    found = solve(posed, Limit(5.0), start=Start(np.array([0, 1, 1, 2, 2], dtype=np.int32), result))
    assert found.proved and 3 * LONGEST - 3 <= found.bound_ns <= 3 * LONGEST == result.step_time_ns
