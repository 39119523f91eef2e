"""Each rule of docs/execution-model.md on a graph of a few ops, with the numbers worked out by hand; and what holds for all inputs."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op, peaks, starts, step
from support.every_placement import feasible
from support.graphs import chains, equal_gpus
from support.random_problems import random_case
from support.slow import slow

from gnnplace.graph import CONTROL, Op, Output
from gnnplace.placement import Placement
from gnnplace.result import Evaluator, StepResult
from gnnplace.simulator import tables
from gnnplace.simulator.simulator import simulate, simulate_devices


def test_a_transfer_waits_for_its_op_occupies_the_channel_and_arrives_a_latency_later():
    chain = made([op("a", 5, 7), op("b", 3)], [(0, 0, 1)], gpus(link(0, 1, overhead_ns=2, latency_ns=4)))
    result = step(chain, 0, 1)
    assert starts(result) == [0, 5 + (2 + 7) + 4]
    assert result.step_time_ns == 21
    assert result.timeline is not None
    assert (result.timeline.transfer_start_ns.tolist(), result.timeline.transfer_end_ns.tolist()) == ([5], [14])
    assert (result.transfers, result.transferred_bytes, result.busy_ns.tolist()) == (1, 7, [5, 3, 0])


def test_an_output_is_sent_once_to_each_device_in_order_of_device_over_the_shared_channel():
    fan = made([op("a", 5, 10), op("x", 1), op("y", 1), op("z", 1)], [(0, 0, 1), (0, 0, 2), (0, 0, 3)], gpus(link(0, 1), link(0, 2)))
    result = step(fan, 0, 2, 1, 2)  # device 1 first: 5..15, then device 2: 15..25, once for x and z
    assert starts(result) == [0, 25, 15, 26]
    assert (result.step_time_ns, result.transfers, result.transferred_bytes) == (27, 2, 20)


def test_links_of_several_devices_share_a_named_channel():
    pair = [op("a", 5, 10), op("b", 5, 10), op("c", 1), op("d", 1)]
    edges = [(0, 0, 2), (1, 0, 3)]
    assert starts(step(made(pair, edges, gpus(link(0, 2), link(1, 2))), 0, 1, 2, 2)) == [0, 0, 15, 16]
    bus = gpus(link(0, 2, channel="bus"), link(1, 2, channel="bus"))
    assert starts(step(made(pair, edges, bus), 0, 1, 2, 2)) == [0, 0, 15, 25]  # a's transfer first: the lower op


def test_control_takes_its_latency_but_at_least_1_ns_and_no_channel():
    edges = [(0, 0, 1), (0, CONTROL, 2)]
    ops = [op("a", 5, 100), op("data", 1), op("control", 1)]
    assert starts(step(made(ops, edges, gpus(link(0, 1, latency_ns=3))), 0, 1, 1)) == [0, 108, 8]
    assert starts(step(made(ops, edges, gpus(link(0, 1))), 0, 1, 1)) == [0, 105, 6]
    assert starts(step(made(ops, edges, gpus()), 0, 0, 0)) == [0, 5, 6]


def test_ready_ops_start_by_priority_then_readiness_then_index():
    ops = [op("late", 4), op("first", 4), op("second", 4)]
    assert starts(step(made(ops, [], gpus()), 0, 0, 0)) == [0, 4, 8]
    assert starts(step(made(ops, [], gpus()), 0, 0, 0, schedule="given", priority=[-(2**63), 0, 2**63 - 1])) == [8, 4, 0]
    waiting = made([op("x", 4), op("later", 1), op("other", 3, 1), op("soon", 1)], [(0, CONTROL, 1), (2, CONTROL, 3)], gpus(link(1, 0)))
    assert starts(step(waiting, 0, 0, 1, 0)) == [0, 4, 0, 5]  # both ready at 4 (3 + 1 over the link): the lower index
    sooner = made([op("x", 5), op("later", 1), op("other", 3, 1), op("soon", 1)], [(0, CONTROL, 1), (2, CONTROL, 3)], gpus(link(1, 0)))
    assert starts(step(sooner, 0, 0, 1, 0)) == [0, 6, 0, 5]  # soon is ready at 4, later at 5


def test_streams_run_several_ops_at_once():
    ops = [op(name, time) for name, time in (("a", 4), ("b", 2), ("c", 3))]
    assert starts(step(made(ops, [], gpus(streams=2)), 0, 0, 0)) == [0, 0, 2]


def test_critical_path_prefers_the_longer_remaining_path():
    ops = [op("short", 4), op("head", 4, 1), op("tail", 9)]
    chain = made(ops, [(1, 0, 2)], gpus(link(0, 1)))
    assert step(chain, 0, 0, 1).step_time_ns == 4 + 4 + 1 + 9
    assert step(chain, 0, 0, 1, schedule="critical-path").step_time_ns == 4 + 1 + 9


def test_times_of_0_last_1_ns():
    assert step(made([op("a", 0), op("b", 0)], [], gpus()), 0, 0).step_time_ns == 2


def test_buffers_live_until_the_last_use_and_the_last_copy():
    ops = [op("a", 5, 10, workspace_bytes=3), op("b", 5, 20), op("c", 5, 40, persistent_bytes=100), op("d", 5)]
    chain = made(ops, [(0, 0, 1), (1, 0, 2), (2, 0, 3)], gpus(link(0, 1)))
    assert peaks(step(chain, 0, 0, 0, 0)) == [100 + 20 + 40, 0, 0]  # a's 10 bytes are gone when c starts
    away = step(chain, 0, 0, 0, 1)  # c's buffer is there until it was sent, and arrives in as many bytes
    assert peaks(away) == [160, 40, 0]
    sent = made([op("a", 5, 10), op("b", 1), op("c", 1, 30)], [(0, 0, 1)], gpus(link(0, 1)))
    assert peaks(step(sent, 0, 1, 0)) == [40, 10, 0]  # c runs while a's output is being sent


def test_what_is_released_goes_before_what_is_allocated():
    chain = made([op("a", 5, 10), op("b", 5), op("c", 5, 10)], [(0, 0, 1), (1, CONTROL, 2)], gpus())
    assert peaks(step(chain, 0, 0, 0)) == [10, 0, 0]


def test_results_stay_to_the_end():
    chain = made([op("a", 5, Output(10, is_result=True)), op("b", 5, 20)], [(0, CONTROL, 1)], gpus())
    assert peaks(step(chain, 0, 0)) == [30, 0, 0]


def test_aliases_share_the_buffer_of_their_root():
    ops = [op("a", 5, 10), op("view", 5, Output(10, alias_of=(0, 0))), op("of view", 5, Output(10, alias_of=(1, 0))), op("end", 5, 1)]
    chain = made(ops, [(0, 0, 1), (1, 0, 2), (2, 0, 3)], gpus(link(0, 1), link(1, 0)))
    assert peaks(step(chain, 0, 0, 0, 0)) == [11, 0, 0]
    abroad = step(chain, 0, 1, 0, 0)  # the view comes back to the buffer that it left, which end still holds
    assert peaks(abroad) == [11, 10, 0]
    assert abroad.transfers == 2


def test_a_copy_has_the_bytes_of_the_largest_output_of_its_root_that_is_sent():
    ops = [op("a", 5, 10), op("view", 5, Output(25, alias_of=(0, 0))), op("x", 1), op("y", 1)]
    both = made(ops, [(0, 0, 1), (0, 0, 2), (1, 0, 3)], gpus(link(0, 1)))
    result = step(both, 0, 0, 1, 1)
    assert peaks(result) == [10, 25, 0]  # one buffer for both, sized for the view from the start
    assert starts(result) == [0, 5, 15, 40]


def test_memory_overflow_names_the_device_and_the_bytes():
    result = step(made([op("a", 5, 10)], [], gpus(memory_bytes=7)), 1)
    assert result.infeasible == "memory: gpu:1 needs 3 bytes more than its 7"
    assert (result.step_time_ns, result.feasible_ns, peaks(result)) == (5, None, [0, 10, 0])


def test_forbidden_devices_and_split_groups_are_reasons_with_a_time():
    ops = [Op("a", "Op", time_ns={"gpu:0": 4, "gpu:1": 9}, colocation="g"), op("b", 2, colocation="g")]
    pair = made(ops, [], gpus())
    assert step(pair, 0, 0).infeasible is None
    forbidden = step(pair, 2, 2)  # not allowed there, it lasts the longest of its times
    assert (forbidden.infeasible, forbidden.step_time_ns) == ("op 'a' is not allowed on gpu:2", 11)
    split = step(pair, 0, 1)
    assert split.infeasible is not None
    assert split.infeasible.startswith("colocation group 'g' is split")
    assert split.step_time_ns == 4


@pytest.mark.parametrize("schedule", ["fifo", "critical-path"])
@pytest.mark.parametrize("output", [0, CONTROL])
def test_without_a_link_there_is_no_time_and_no_peak(schedule, output):
    result = step(made([op("a", 5, 10), op("b", 3)], [(0, output, 1)], gpus(link(1, 0))), 0, 1, schedule=schedule)
    assert result.infeasible == "edge 'a' -> 'b' needs a link from gpu:0 to gpu:1, which does not exist"
    assert (result.step_time_ns, result.peak_memory_bytes, result.timeline) == (None, None, None)
    assert result.busy_ns.tolist() == [5, 3, 0]


def test_no_ops_wait_without_reason():
    for count in (1, 3):  # independent chains on as many devices: the length of one
        placed = np.repeat(np.arange(count, dtype=np.int32), 5)
        (result,) = simulate(chains(count, 5, count, time_ns=1000), [Placement(placed)])
        assert result.step_time_ns == 5000


def test_wrong_input_is_refused():
    pair = chains(1, 2, 2)
    with pytest.raises(ValueError, match="device: 3 entries for the 2 ops"):
        step(pair, 0, 1, 0)
    with pytest.raises(ValueError, match="device: 2 is none of the 2 devices"):
        step(pair, 0, 2)
    with pytest.raises(ValueError, match="device: -1 is none of"):
        step(pair, 0, -1)
    with pytest.raises(ValueError, match="schedule: 'given' needs priorities"):
        simulate_devices(pair, np.zeros((1, 2), np.int32), "given")
    with pytest.raises(ValueError, match=r"less than 2\^53 are due"):  # for the latency of a link alone
        made([op(f"op{i}", 1, 1) for i in range(3000)], [(0, 0, i) for i in range(1, 3000)], gpus(link(0, 1, latency_ns=2**50)))


def test_simulate_is_an_evaluator_and_nothing_is_simulated_for_nobody():
    assert isinstance(simulate, Evaluator)
    assert simulate(chains(1, 2, 2), []) == ()


def facts(result: StepResult) -> tuple:
    peak = None if result.peak_memory_bytes is None else result.peak_memory_bytes.tolist()
    sent = result.transferred_bytes, result.transfers
    return result.schedule, result.step_time_ns, result.infeasible, peak, result.busy_ns.tolist(), sent


@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 40))])
def test_together_is_one_by_one_whatever_the_threads_and_schedules(seed):
    case = random_case(seed).problem()
    rng = np.random.default_rng(seed)
    device = rng.integers(0, case.num_devices, (100, case.num_ops), dtype=np.int32)
    priority = rng.integers(-3, 3, case.num_ops)
    mixed = [Placement(row.copy(), "fifo") if i % 3 else Placement(row.copy(), "given", priority) for i, row in enumerate(device)]
    mixed[::2] = [Placement(placement.device) for placement in mixed[::2]]
    together = simulate(case, mixed)
    assert [facts(result) for result in together] == [facts(simulate(case, [placement])[0]) for placement in mixed]
    one, many = (simulate_devices(case, device, threads=threads) for threads in (1, 3))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))
    expected = simulate(case, [Placement(row) for row in device])
    assert feasible(case, one).tolist() == [result.infeasible is None for result in expected]


def test_a_step_beyond_its_limit_is_left_off_by_hand():
    """gpu:0 has 5 + 7 + 1 to run from 0 on, and 7 + 1 when it starts `late` at 8: 16 at least, which is all."""
    ops = [op("early", 5, 1), op("far", 1, 1), op("late", 7, 1), op("last", 1)]
    posed = made(ops, [(0, 0, 1), (1, 0, 2), (2, 0, 3)], gpus(link(0, 1), link(1, 0)))
    placed = Placement(np.array([0, 1, 0, 0], np.int32))
    (whole,) = simulate(posed, [placed])
    assert whole.step_time_ns == 5 + 1 + 1 + 1 + 7 + 1
    for limit_ns in (16, 17):
        assert facts(simulate(posed, [placed], limit_ns=limit_ns)[0]) == facts(whole)
    (left,) = simulate(posed, [placed], timeline=True, limit_ns=15)
    assert left.infeasible == "time: the step takes more than 15 ns"
    assert (left.step_time_ns, left.peak_memory_bytes, left.timeline) == (None, None, None)


@pytest.mark.parametrize("low", [0, *map(slow, range(40, 320, 40))])
def test_what_is_within_its_limit_is_whole_and_most_of_what_is_far_beyond_is_left_off(low):
    left, beyond = 0, 0
    for case in (random_case(seed) for seed in range(low, low + 40)):
        posed, placement = case.problem(), case.placement()
        (whole,) = simulate(posed, [placement])
        for share in (1.2, 1.0, 0.9, 0.5) if whole.step_time_ns else ():
            limit_ns = int(share * whole.step_time_ns)
            (found,) = simulate(posed, [placement], limit_ns=limit_ns)
            was_left = found.step_time_ns is None
            assert facts(found) == facts(whole) if not was_left else limit_ns < whole.step_time_ns and found.infeasible is not None
            left, beyond = left + (was_left and share == 0.5), beyond + (share == 0.5)
    assert left > 0.7 * beyond > 10


def test_many_threads_agree_on_a_problem_of_several_tasks():
    big = chains(40, 50, 4, time_ns=1000)
    device = np.random.default_rng(0).integers(0, 4, (60, big.num_ops), dtype=np.int32)
    one, many = (simulate_devices(big, device, threads=threads) for threads in (1, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))


def test_tables_are_forgotten_with_their_problem():
    case = chains(2, 3, 2)
    simulate_devices(case, np.zeros((1, 6), np.int32))
    held = weakref.ref(case)
    assert case in tables._tables
    del case
    gc.collect()
    assert held() is None


def test_equal_gpus_are_interchangeable():
    case = chains(3, 4, 3)
    device = np.random.default_rng(1).integers(0, 3, (20, 12), dtype=np.int32)
    renamed = simulate_devices(case, (device + 1) % 3, "fifo")
    assert equal_gpus(3).num_devices == 3
    assert np.array_equal(np.roll(simulate_devices(case, device, "fifo").busy_ns, 1, axis=1), renamed.busy_ns)
