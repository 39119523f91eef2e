"""A device that copies by itself: its transfers and its ops share its streams; the numbers are worked out by hand."""

from __future__ import annotations

import pytest
from by_hand import gpus, link, made, op, peaks, starts, step

from gnnplace.cluster import NO_CHANNEL, Cluster, ClusterError
from gnnplace.graph import CONTROL


def copier(*destinations: int, streams: int = 1, latency_ns: int = 0) -> Cluster:
    """Three GPUs; links from the first, which copies over them by itself, a byte a nanosecond."""
    return gpus(*(link(0, there, channel="gpu:0", latency_ns=latency_ns) for there in destinations), streams=streams)


def test_a_device_sends_all_that_waits_before_it_starts_an_op():
    # a 0-5, to x 5-15, to y 15-25; only then r, though it was ready at 0
    ops, edges = [op("a", 5, 10), op("x", 1), op("y", 1), op("r", 4)], [(0, 0, 1), (0, 0, 2)]
    engine = step(made(ops, edges, gpus(link(0, 1), link(0, 2))), 0, 1, 2, 0)
    assert (starts(engine), engine.step_time_ns) == ([0, 15, 25, 5], 26)
    result = step(made(ops, edges, copier(1, 2)), 0, 1, 2, 0)
    assert (starts(result), result.step_time_ns) == ([0, 15, 25, 25], 29)
    assert result.busy_ns.tolist() == [5 + 4, 1, 1]  # ops alone


def test_no_priority_of_an_op_overtakes_a_transfer():
    ops, edges = [op("a", 5, 10), op("x", 1), op("y", 1), op("r", 4)], [(0, 0, 1), (0, 0, 2), (0, CONTROL, 3)]
    result = step(made(ops, edges, copier(1, 2)), 0, 1, 2, 0, schedule="given", priority=[0, 0, 0, 9])
    assert starts(result) == [0, 15, 25, 25]


def test_links_that_do_not_name_the_device_keep_their_engine():
    ops, edges = [op("a", 5, 10), op("x", 1), op("y", 1), op("r", 4)], [(0, 0, 1), (0, 0, 2)]
    some = gpus(link(0, 1, channel="gpu:0"), link(0, 2))
    assert some.device_channel.tolist() == [0, NO_CHANNEL, NO_CHANNEL]
    assert starts(step(made(ops, edges, some), 0, 1, 2, 0)) == [0, 15, 15, 15]  # both 5-15, of which one takes the stream


def test_an_op_that_becomes_ready_during_a_copy_waits_for_its_end():
    # a 0-5, its transfer 5-15; o 0-7, so c is ready at 8; the device that receives is free: z 0-12
    ops, edges = [op("a", 5, 10), op("x", 1), op("o", 7), op("c", 3), op("z", 12)], [(0, 0, 1), (2, CONTROL, 3)]
    engine = gpus(link(0, 2), link(1, 0, latency_ns=1))
    assert starts(step(made(ops, edges, engine), 0, 2, 1, 0, 2)) == [0, 15, 0, 8, 0]
    by_itself = gpus(link(0, 2, channel="gpu:0"), link(1, 0, latency_ns=1))
    assert starts(step(made(ops, edges, by_itself), 0, 2, 1, 0, 2)) == [0, 15, 0, 15, 0]


def test_the_stream_is_free_when_the_transfer_leaves_not_when_it_arrives():
    ops = [op("a", 5, 10), op("x", 1), op("r", 4)]
    assert starts(step(made(ops, [(0, 0, 1)], copier(1, latency_ns=6)), 0, 1, 0)) == [0, 21, 15]


def test_an_op_ends_beside_a_copy_and_its_transfer_takes_over_the_stream():
    # 2 streams: a 0-5, b 0-7; a's transfer 5-15; s takes b's stream, 7-27; b's transfer, queued since 7, 15-25; t, ready since 0, only then
    ops = [op("a", 5, 10), op("b", 7, 10), op("x", 1), op("y", 1), op("s", 20), op("t", 1)]
    pair = made(ops, [(0, 0, 2), (1, 0, 3)], copier(1, streams=2))
    result = step(pair, 0, 0, 1, 1, 0, 0)
    assert starts(result) == [0, 0, 15, 25, 7, 25]
    assert result.timeline is not None and result.timeline.transfer_start_ns.tolist() == [5, 15]


def test_one_transfer_at_a_time_leaves_the_other_streams_to_ops():
    # both end at 5: a's transfer 5-15, b's 15-25, and s at 5 beside them
    ops = [op("a", 5, 10), op("b", 5, 10), op("x", 1), op("y", 1), op("s", 3)]
    assert starts(step(made(ops, [(0, 0, 2), (1, 0, 3)], copier(1, streams=2)), 0, 0, 1, 1, 0)) == [0, 0, 15, 25, 5]
    # an op that lasts over the whole copy keeps its stream: r 0-20, the transfer 5-15, s at 15
    ops = [op("a", 5, 10), op("x", 1), op("r", 20), op("s", 3)]
    assert starts(step(made(ops, [(0, 0, 1)], copier(1, streams=2)), 0, 1, 0, 0)) == [0, 15, 0, 15]


def test_devices_that_copy_by_themselves_do_not_wait_for_each_other():
    # a and b cross, both 5-15; r and s, ready since 0, go before y and x, ready at 15
    ops = [op("a", 5, 10), op("b", 5, 10), op("x", 1), op("y", 1), op("r", 4), op("s", 4)]
    both = gpus(link(0, 1, channel="gpu:0"), link(1, 0, channel="gpu:1"))
    assert both.device_channel.tolist() == [0, 1, NO_CHANNEL]
    assert starts(step(made(ops, [(0, 0, 2), (1, 0, 3)], both), 0, 1, 1, 0, 0, 1)) == [0, 0, 19, 19, 15, 15]


def test_what_was_sent_is_released_before_the_op_that_waited_starts():
    ops = [op("a", 5, 10), op("x", 1), op("r", 4, 30)]
    assert peaks(step(made(ops, [(0, 0, 1)], gpus(link(0, 1))), 0, 1, 0)) == [40, 10, 0]
    assert peaks(step(made(ops, [(0, 0, 1)], copier(1)), 0, 1, 0)) == [30, 10, 0]


def test_only_its_own_source_is_a_channel():
    with pytest.raises(ClusterError, match=r"links\[1\]\.channel: 'gpu:1' is the name of a device; a channel needs its own, or .* 'gpu:0'"):
        gpus(link(0, 2, channel="gpu:0"), link(0, 1, channel="gpu:1"))
