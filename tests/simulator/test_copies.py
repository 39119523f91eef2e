"""A device that sends or receives by itself: transfers and ops share its streams; the numbers are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op, peaks, starts, step

from gnnplace.cluster import NO_CHANNEL, Cluster, ClusterError
from gnnplace.graph import CONTROL
from gnnplace.schedules.ranks import rank_ns


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


def receivers(*pairs: tuple[int, int], streams: int = 1, latency_ns: int = 0) -> Cluster:
    """Three GPUs that send over engines, a byte a nanosecond, and receive by themselves."""
    return gpus(*(link(src, dst, receive_channel=f"gpu:{dst}", latency_ns=latency_ns) for src, dst in pairs), streams=streams)


def test_what_arrives_is_received_before_the_next_op_starts_but_interrupts_none():
    # a 0-5, sent 5-15; r 0-18, so it is received 18-28; only then x, and s, ready since 0
    ops, edges = [op("a", 5, 10), op("x", 1), op("r", 18), op("s", 4)], [(0, 0, 1)]
    result = step(made(ops, edges, receivers((0, 1))), 0, 1, 1, 1)
    assert starts(result) == [0, 32, 0, 28]  # s was ready first
    assert result.timeline is not None
    assert (result.timeline.receive_start_ns.tolist(), result.timeline.receive_end_ns.tolist()) == ([18], [28])
    two = step(made(ops, edges, receivers((0, 1), streams=2)), 0, 1, 1, 1)
    assert starts(two) == [0, 25, 0, 0]  # s ends at 4, so one stream receives 15-25


def test_the_latency_passes_after_it_was_received_and_the_source_is_free_before():
    ops = [op("a", 5, 10), op("x", 1), op("r", 4, 30)]
    result = step(made(ops, [(0, 0, 1), (0, CONTROL, 2)], receivers((0, 1), latency_ns=6)), 0, 1, 0)
    assert (starts(result), result.step_time_ns) == ([0, 31, 5], 32)
    assert peaks(result) == [40, 10, 0]  # r beside what leaves until 15
    late = step(made([*ops, op("o", 15)], [(0, 0, 1), (3, CONTROL, 2)], receivers((0, 1), (2, 0))), 0, 1, 0, 2)
    assert (starts(late), peaks(late)) == ([0, 25, 16, 0], [30, 10, 0])


def test_a_device_receives_and_sends_one_after_the_other_in_the_order_of_asking():
    # a 0-5 on gpu:0, sent 5-15 by its engine; b 0-15 on gpu:1, whose transfer queues after what arrived at the same time
    ops = [op("a", 5, 10), op("b", 15, 10), op("x", 1), op("y", 1)]
    both = gpus(link(0, 1, receive_channel="gpu:1"), link(1, 2, channel="gpu:1"))
    result = step(made(ops, [(0, 0, 2), (1, 0, 3)], both), 0, 1, 1, 2)
    assert starts(result) == [0, 0, 35, 35]  # received 15-25, sent 25-35, and no op before that
    assert result.timeline is not None and result.timeline.transfer_start_ns.tolist() == [5, 25]


def test_a_receive_channel_may_be_an_engine_that_links_share():
    ops = [op("a", 5, 10), op("b", 5, 10), op("x", 1), op("y", 1)]
    inbox = gpus(link(0, 2, receive_channel="inbox"), link(1, 2, receive_channel="inbox"))
    assert inbox.link_receive_channel.tolist() == [2, 2] and inbox.device_channel.tolist() == [NO_CHANNEL] * 3
    assert starts(step(made(ops, [(0, 0, 2), (1, 0, 3)], inbox), 0, 1, 2, 2)) == [0, 0, 25, 35]


def test_a_path_over_a_receive_channel_counts_both_occupations():
    ops, edges = [op("a", 5, 10), op("b", 5, 10), op("x", 1), op("y", 12)], [(0, 0, 2), (1, 0, 3)]
    there = gpus(link(0, 1, receive_channel="gpu:1"), link(0, 2))
    assert rank_ns(made(ops, edges, there), np.array([0, 0, 1, 2], np.int32)).tolist() == [5 + 20 + 1, 5 + 10 + 12, 1, 12]


def test_only_its_own_source_is_a_channel_and_only_its_destination_receives():
    with pytest.raises(ClusterError, match=r"links\[1\]\.channel: 'gpu:1' is the name of a device; a channel needs its own, or .* 'gpu:0'"):
        gpus(link(0, 2, channel="gpu:0"), link(0, 1, channel="gpu:1"))
    with pytest.raises(ClusterError, match=r"links\[0\]\.receive_channel: 'gpu:0' is the name of a device; .* destination 'gpu:1'"):
        gpus(link(0, 1, receive_channel="gpu:0"))
