"""What ops waited for, by hand, and what holds of any step."""

import numpy as np
import pytest
from by_hand import gpus, link, made, op, step
from random_problems import random_case

from gnnplace.baselines.waits import waiting
from gnnplace.evaluate.simulator import simulate
from gnnplace.graph import CONTROL, NONE
from gnnplace.placement import Placement, missing_link


def of(posed, *device, **given):
    result = step(posed, *device, **given)
    return waiting(posed, np.array(device, np.int32), result.timeline)


def test_devices_inputs_and_channels_by_hand():
    """One op sends twice over a channel; the second transfer waits for the first, and one op for the device."""
    ops = [op("source", 5, 10, 20), op("near", 7), op("far", 1), op("farther", 1), op("alone", 3)]
    posed = made(ops, [(0, 0, 2), (0, 1, 3), (0, CONTROL, 1)], gpus(link(0, 1, latency_ns=2), link(0, 2)))
    found = of(posed, 0, 0, 1, 1, 0)
    assert found.behind.tolist() == [NONE, 4, 0, 0, 0]  # fifo: `alone` was ready at 0, `near` at 5
    assert found.ready_ns.tolist() == [0, 5, 17, 37, 0]
    assert found.queued.tolist() == [False, True, False, True, True]
    assert found.chain(3).tolist() == [3, 0] and found.chain(1).tolist() == [1, 4, 0]


def test_control_of_another_device_takes_its_latency():
    posed = made([op("a", 5), op("b", 1)], [(0, CONTROL, 1)], gpus(link(0, 1, latency_ns=4)))
    assert of(posed, 0, 1).ready_ns.tolist() == [0, 9] and not of(posed, 0, 1).queued.any()


@pytest.mark.parametrize("seed", range(60))
def test_readiness_is_what_the_simulator_waits_for(seed):
    """No op starts before it is ready; those that start later find their device taken or wait for one of its other streams' work."""
    case = random_case(seed)
    posed, placement = case.problem(), case.placement()
    if missing_link(posed, placement.device) is not None:
        return
    (result,) = simulate(posed, [placement], timeline=True)
    found, timeline = waiting(posed, placement.device, result.timeline), result.timeline
    assert (timeline.start_ns >= found.ready_ns).all()
    last = int(timeline.end_ns.argmax())
    chain = found.chain(last)
    assert (timeline.start_ns[chain[:-1]] >= timeline.end_ns[chain[1:]]).all()
    plain = posed.cluster.device_channel.max(initial=-1) < 0
    if plain:  # then only ops occupy a device: who starts late, starts when another ends, and a chain ends with an op that waited for none
        late = np.flatnonzero(timeline.start_ns > found.ready_ns)
        assert (timeline.end_ns[found.behind[late]] == timeline.start_ns[late]).all() and found.queued[late].all()
        assert (placement.device[found.behind[late]] == placement.device[late]).all()
        assert timeline.start_ns[chain[-1]] == 0


def test_a_chain_of_one_device_without_idle_time_is_all_of_it():
    posed = made([op(f"o{i}", 3) for i in range(6)], [], gpus())
    (result,) = simulate(posed, [Placement(np.zeros(6, np.int32))], timeline=True)
    assert waiting(posed, np.zeros(6, np.int32), result.timeline).chain(5).tolist() == [5, 4, 3, 2, 1, 0]
