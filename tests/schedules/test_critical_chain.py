"""The critical chain, by hand and on random problems."""

import numpy as np
import pytest
from support import by_hand
from support.graphs import equal_gpus, op
from support.random_problems import random_case
from support.slow import slow

from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.placement import Placement, missing_link
from gnnplace.schedules.critical_chain import chain_ns, waiting
from gnnplace.simulator.simulator import simulate

NO_WAIT = [(0, 0, 1)]


def chain_of(times, edges, device, size=100):
    """Transfers of `size` bytes take as many nanoseconds."""
    ops = [op(f"o{i}", time, size) for i, time in enumerate(times)]
    posed = problem(ComputationGraph.from_ops("hand", ops, edges), equal_gpus(2))
    placed = np.array(device, dtype=np.int32)
    (result,) = simulate(posed, [Placement(placed)], timeline=True)
    return result.step_time_ns, chain_ns(posed, placed, result.timeline).tolist()


@pytest.mark.parametrize(
    ("times", "edges", "device", "step_time_ns", "expected"),
    [
        ([10, 20], NO_WAIT, [0, 0], 30, [10, 20]),
        ([10, 20], NO_WAIT, [0, 1], 130, [110, 20]),  # the transfer counts for who sends it
        ([10, 20, 200], NO_WAIT, [0, 1, 1], 220, [0, 20, 200]),  # the device was busy
        ([10, 20, 5], NO_WAIT, [0, 1, 1], 130, [110, 20, 0]),
        ([10, 10, 20], [(0, 0, 2), (1, 0, 2)], [0, 0, 1], 230, [110, 100, 20]),  # the channel was busy
        ([10, 20], [(0, CONTROL, 1)], [0, 1], 31, [11, 20]),
        ([10, 20, 5], [], [0, 1, 0], 20, [0, 20, 0]),
    ],
)
def test_what_the_end_waited_for(times, edges, device, step_time_ns, expected):
    assert chain_of(times, edges, device) == (step_time_ns, expected)


def test_a_transfer_starts_as_its_source_ends_though_another_ends_then():
    """Device 0 sends 10..110; o1 ends at 110 and sends at once, over the same channel."""
    assert chain_of([10, 100, 20], [(0, 0, 1), (0, 0, 2), (1, 0, 2)], [0, 0, 1]) == (230, [10, 200, 20])


@pytest.mark.parametrize("seed", range(8))
def test_it_leads_back_to_the_start(seed):
    generator = np.random.default_rng(seed)
    count = 30
    edges = [(i, 0, j) for i in range(count) for j in range(i + 1, count) if generator.random() < 0.1]
    times = generator.integers(1, 200, count).tolist()
    step_time_ns, chain = chain_of(times, edges, generator.integers(0, 2, count), size=int(generator.integers(1, 150)))
    assert sum(chain) == step_time_ns
    assert min(chain) >= 0


def waiting_by_hand(posed, *device):
    return waiting(posed, np.array(device, np.int32), by_hand.step(posed, *device).timeline)


def test_devices_inputs_and_channels_by_hand():
    """One op sends twice over a channel; the second transfer waits for the first, and one op for the device."""
    ops = [by_hand.op("source", 5, 10, 20), by_hand.op("near", 7), by_hand.op("far", 1), by_hand.op("farther", 1), by_hand.op("alone", 3)]
    links = [by_hand.link(0, 1, latency_ns=2), by_hand.link(0, 2)]
    found = waiting_by_hand(by_hand.made(ops, [(0, 0, 2), (0, 1, 3), (0, CONTROL, 1)], by_hand.gpus(*links)), 0, 0, 1, 1, 0)
    first, second = 5, 6  # transfers
    assert found.behind.tolist() == [NONE, 4, first, second, 0, 0, first]  # fifo: `alone` was ready at 0, `near` at 5
    assert found.ready_ns.tolist() == [0, 5, 17, 37, 0]
    assert np.flatnonzero(found.queued).tolist() == [1, 4, second]
    assert found.op.tolist() == [0, 1, 2, 3, 4, 0, 0]
    assert found.chain(3).tolist() == [3, second, first, 0] and found.chain(1).tolist() == [1, 4, 0]


def test_control_of_another_device_takes_its_latency():
    posed = by_hand.made([by_hand.op("a", 5), by_hand.op("b", 1)], [(0, CONTROL, 1)], by_hand.gpus(by_hand.link(0, 1, latency_ns=4)))
    found = waiting_by_hand(posed, 0, 1)
    assert found.ready_ns.tolist() == [0, 9] and not found.queued.any()


@pytest.mark.parametrize("seed", [*range(15), *map(slow, range(15, 60))])
def test_readiness_is_what_the_simulator_waits_for(seed):
    """No op starts before it is ready; one that starts later finds its device taken, unless copies or receipts take it, too."""
    case = random_case(seed)
    posed, placement = case.problem(), case.placement()
    if missing_link(posed, placement.device) is not None:
        return
    (result,) = simulate(posed, [placement], timeline=True)
    found, timeline = waiting(posed, placement.device, result.timeline), result.timeline
    assert (timeline.start_ns >= found.ready_ns).all()
    chain = found.chain(int(timeline.end_ns.argmax()))
    assert (np.diff(found.start_ns[chain]) <= 0).all()
    if posed.cluster.device_channel.max(initial=-1) < 0:
        late = np.flatnonzero(timeline.start_ns > found.ready_ns)
        assert (timeline.end_ns[found.behind[late]] == timeline.start_ns[late]).all() and found.queued[late].all()
        assert (placement.device[found.behind[late]] == placement.device[late]).all()
        assert found.start_ns[chain[-1]] == 0 and chain[-1] < posed.num_ops


def test_what_waits_to_be_received_has_waited_for_a_channel():
    """Both outputs leave their own devices from 5 to 15; the first is received from 15 to 25, the other from 25 to 35."""
    ops = [by_hand.op("one", 5, 10), by_hand.op("other", 5, 10), by_hand.op("both", 1)]
    links = [by_hand.link(src, 2, receive_channel="in") for src in (0, 1)]
    found = waiting_by_hand(by_hand.made(ops, [(0, 0, 2), (1, 0, 2)], by_hand.gpus(*links)), 0, 1, 2)
    assert found.ready_ns.tolist() == [0, 0, 35] and np.flatnonzero(found.queued).tolist() == [4]
    assert found.chain(2).tolist() == [2, 4, 1]
