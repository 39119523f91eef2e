"""List schedules that feed back a placement: what moves an op, what is counted, and when lists stay random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op
from support.random_problems import tiny_problems

from gnnplace.baselines.fed_back_lists import Feedback, behind, drawn_feedback, fed_back_list, precedent
from gnnplace.baselines.own_starts import RANDOM, STARTS, own_start
from gnnplace.baselines.sampled_lists import Settings, drawn, list_schedule
from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement, check
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import units

PLAIN = Settings("ops", share=2.0, view=0, downward=False, disturbed=0.0, by_unit=False, staged=0.0, kept=False)


def run(posed, device, settings=PLAIN):
    """The precedent of a placement."""
    placement = Placement(np.array(device, dtype=np.int32))
    return precedent(posed, settings, placement, simulate(posed, [placement], timeline=True)[0])


def bound_reader():
    """A producer of 1,000 bytes on any of two GPUs, and its consumer, which runs on the second alone."""
    reader = Op("reader", "Op", (Output(0),), time_ns={"gpu:1": 10})
    return problem(ComputationGraph.from_ops("bound", [op("producer", 10, 1000), reader], [(0, 0, 1)]), equal_gpus(2))


def placed(posed, before, **feedback):
    plain = Feedback(PLAIN, ranked=True, path=0.0, messages=0.0)
    return fed_back_list(posed, plain._replace(**feedback), before, np.random.default_rng(0)).device.tolist()


@pytest.mark.parametrize("feedback", [{"path": 1.0}, {"messages": 1.0}, {"path": 0.5, "messages": 0.5, "ranked": False}])
def test_a_producer_moves_to_its_consumer_if_either_penalty_counts(feedback):
    posed = bound_reader()
    before = run(posed, [0, 1])
    assert placed(posed, before) == [0, 1]  # the list does not see the consumer
    assert placed(posed, before, **feedback) == [1, 1]


def test_ranks_say_in_which_order_a_device_runs_its_ops():
    ops = [op("short", 10), op("long", 20), op("reader", 100)]
    posed = problem(ComputationGraph.from_ops("order", ops, [(1, 0, 2)]), equal_gpus(2))
    assert run(posed, [0, 0, 0]).rank_ns.tolist() == [10, 130, 110]  # long, reader, short
    assert run(posed, [1, 0, 0]).rank_ns.tolist() == [10, 120, 100]


def behind_of(posed, grouping, before):
    """`behind` in plain Python: for each unit and device a loop over edges."""
    graph, cluster = posed.graph, posed.cluster
    shape = (grouping.num_units, posed.num_devices)
    path, messages = np.zeros(shape), np.zeros(shape)
    sent = set()
    for edge in range(graph.num_edges):
        src, dst, output = int(graph.edge_src[edge]), int(graph.edge_dst[edge]), int(graph.edge_data[edge])
        unit, there = grouping.unit[src], int(before.device[dst])
        if grouping.unit[dst] == unit:
            continue
        for here in range(posed.num_devices):
            lag = 0
            if here != there:
                link = cluster.link_index[here, there]
                lag = max(1, int(cluster.link_latency_ns[link]))
                if output >= 0:
                    transfer = int(posed.transfer_ns[output, posed.link_rate[link]])
                    channels = 2 if cluster.link_receive_channel[link] >= 0 else 1
                    lag = int(cluster.link_latency_ns[link]) + channels * transfer
                    if (output, here, there) not in sent:
                        messages[unit, here] += transfer
                        sent.add((output, here, there))
            path[unit, here] = max(path[unit, here], lag + before.rank_ns[dst])
    return path, messages


@pytest.mark.parametrize("name", ["ops", "weights", "coarse"])
def test_what_follows_a_unit_is_what_a_plain_loop_over_edges_finds(name):
    compared = 0
    for seed, posed in tiny_problems(range(200), 10**6, 25, ops=3, linked=True):
        generator = np.random.default_rng(seed)
        placement = list_schedule(posed, drawn(generator), generator)
        before = precedent(posed, PLAIN, placement, simulate(posed, [placement], timeline=True)[0])
        if before is not None:
            grouping = units(posed.graph, name)
            for expected, reached in zip(behind_of(posed, grouping, before), behind(posed, grouping, before), strict=True):
                assert np.array_equal(expected, reached)
            compared += 1
    assert compared > 10


def test_a_missing_link_to_a_consumer_counts_as_a_whole_step():
    posed = bound_reader()
    one_way = replace(posed.cluster, links=tuple(link for link in posed.cluster.links if link.src == "gpu:1"))
    apart = problem(posed.graph, one_way)
    before = run(apart, [1, 1])
    assert behind(apart, units(apart.graph, "ops"), before).path_ns.tolist() == [[20, 10], [0, 0]]
    assert placed(apart, before, path=1.0) == [1, 1]


def test_fed_back_lists_keep_the_rules():
    for seed, posed in tiny_problems(range(100), 10**6, 12, ops=3, linked=True):
        generator = np.random.default_rng(seed)
        placement = list_schedule(posed, drawn(generator), generator)
        before = precedent(posed, drawn(generator), placement, simulate(posed, [placement], timeline=True)[0])
        for _ in range(4 if before else 0):
            again = fed_back_list(posed, drawn_feedback(generator, before.settings), before, generator)
            assert check(posed, again) is None and again.schedule == "critical-path"


def test_the_same_generator_draws_the_same_lists_and_they_vary():
    posed = chains(6, 5, 3)
    before = run(posed, np.arange(30) % 3)

    def lists(seed):
        generator = np.random.default_rng(seed)
        return [fed_back_list(posed, drawn_feedback(generator, PLAIN), before, generator).device.tolist() for _ in range(12)]

    assert lists(4) == lists(4)
    assert len({tuple(device) for device in lists(4)}) > 3


def test_settings_are_kept_or_drawn_anew_and_weights_are_of_three():
    generator = np.random.default_rng(0)
    settings = PLAIN._replace(units_name="weights", view=2, share=0.5, kept=True, staged=0.1, downward=True)
    many = [drawn_feedback(generator, settings) for _ in range(400)]
    assert {each.path for each in many} == {each.messages for each in many} == {0.0, 0.5, 1.0}
    assert 0 < sum(each.path == each.messages == 0 for each in many) < 80
    assert all(each.settings.kept and not each.settings.staged and not each.settings.downward for each in many)
    for name, least in (("units_name", 0.5), ("view", 0.5), ("share", 0.8)):
        assert least < np.mean([getattr(each.settings, name) == getattr(settings, name) for each in many]) < 1
    assert 0.5 < np.mean([each.ranked for each in many]) < 0.7
    assert 0.6 < np.mean([each.settings.disturbed == 0 for each in many]) < 0.75


def test_a_placement_that_overflows_or_has_no_timeline_is_no_precedent():
    posed = chains(2, 2, 2)
    placement = Placement(np.zeros(4, dtype=np.int32))
    with_timeline, without = (simulate(posed, [placement], timeline=timeline)[0] for timeline in (True, False))
    assert precedent(posed, PLAIN, placement, with_timeline) is not None
    assert precedent(posed, PLAIN, placement, without) is None
    small = problem(posed.graph, equal_gpus(2, memory_bytes=1))
    (overflow,) = simulate(small, [placement], timeline=True)
    assert overflow.timeline is not None and precedent(small, PLAIN, placement, overflow) is None


def random_lists(posed, seed, count):
    generator = np.random.default_rng(seed)
    return [list_schedule(posed, drawn(generator), generator).device.tolist() for _ in range(count)]


def start_with(posed, seed, timelines=True):
    """The evaluated placements of `own_start`, its budget, and its placement."""
    evaluated, budget = [], Budget(evaluations=64)

    def evaluate(given, placements, *, timeline=False, limit_ns=None):
        evaluated.extend(placement.device.tolist() for placement in placements)
        return simulate(given, placements, timeline=timeline and timelines, limit_ns=limit_ns)

    return evaluated, budget, own_start(posed, evaluate, np.random.default_rng(seed), budget)


def test_a_start_counts_every_list_once_and_is_the_fastest_of_them():
    posed = chains(5, 6, 3)
    evaluated, budget, start = start_with(posed, 3)
    assert len(evaluated) == budget.spent == STARTS
    assert evaluated[:RANDOM] == random_lists(posed, 3, RANDOM)
    assert evaluated[RANDOM:] != random_lists(posed, 3, STARTS)[RANDOM:]
    times = [result.step_time_ns for result in simulate(posed, [Placement(np.array(each, np.int32)) for each in evaluated])]
    assert simulate(posed, [start])[0].step_time_ns == min(times)


def test_without_timelines_all_lists_are_random():
    posed = chains(5, 6, 3)
    evaluated, budget, _ = start_with(posed, 3, timelines=False)
    assert evaluated == random_lists(posed, 3, STARTS) and budget.spent == STARTS


def test_while_nothing_fits_all_lists_are_random():
    ops = [op(f"{i}", 1000, 100, persistent_bytes=1000) for i in range(24)]
    posed = problem(ComputationGraph.from_ops("layers", ops, [(i, 0, i + 1) for i in range(23)]), equal_gpus(2, memory_bytes=11_000))
    evaluated, _, _ = start_with(posed, 0)
    assert evaluated[:STARTS] == random_lists(posed, 0, STARTS)


def test_a_start_ends_at_the_proved_bound():
    posed = chains(4, 6, 4)
    budget = Budget(evaluations=64, bound_ns=6000)
    own_start(posed, simulate, np.random.default_rng(0), budget)
    assert budget.spent < STARTS
