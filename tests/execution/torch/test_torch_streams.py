"""The GPU path without a GPU: every line of it, over streams and events that are checked instead of timed."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from support import fake_cuda, torch_steps

from gnnplace.execution.measure import difference
from gnnplace.execution.torch import streams as torch_streams
from gnnplace.execution.torch.lanes import lanes
from gnnplace.execution.torch.program import Message, Signal
from gnnplace.execution.torch.threads import TorchThreads

SHAPE = (3, 4)


def transport(*kinds: str) -> torch_streams.Streams:
    return torch_streams.Streams(lanes(kinds))


def message(number: int = 0) -> Message:
    like = torch.empty(SHAPE, device="meta").t()
    return Message(number, torch.fx.Graph().placeholder("x"), 0, 1, torch.empty_like(like, device="meta"), number)


@pytest.mark.parametrize("kinds", [("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "gpu"), ("cpu", "cpu")])
def test_a_value_arrives_after_its_making(monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str]) -> None:
    gpu, sent = fake_cuda.install(monkeypatch), torch.rand(SHAPE).t()
    pair = lanes(kinds)
    over = torch_streams.Streams(pair)
    send, receive = over.sender(message()), over.receiver(message())
    for step in range(1, 3):
        if pair[0].stream is not None:
            pair[0].stream.work()  # the op that makes the value
        send(sent)
        found = receive()
        assert torch.equal(found, sent) and found.data_ptr() != sent.data_ptr()
        if kinds == ("gpu", "gpu"):
            assert pair[1].stream.clock[id(pair[0].stream)] >= 2 * step - 1  # after the making, by way of the copy
    told = {stream for _, stream in gpu.recorded}
    streams = set() if kinds == ("cpu", "cpu") else {over.copy_streams(0, 1)[0]}
    expected = {"gpu": streams, "cpu": set()}[kinds[0]] | ({pair[1].stream} if kinds[1] == "gpu" else set())
    assert told == expected  # the copy stream reads the sender's memory, the receiver's stream reads the copy


def test_a_copy_between_two_gpus_orders_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda.install(monkeypatch)
    maker, user, near, far = (fake_cuda.Stream(torch.device("cpu")) for _ in range(4))
    copy = torch_streams._between_gpus(message().tensor, maker, torch.device("cpu"), user, (near, far))
    maker.work()
    arrival = copy(torch.rand(SHAPE).t())
    assert near.clock[id(maker)] == 2  # the op and the event behind it
    assert arrival.ready is not None and id(far) in arrival.ready.passed


@pytest.mark.parametrize("kinds", [("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "gpu"), ("cpu", "cpu")])
def test_a_signal_is_an_event_and_nothing_else(monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, str]) -> None:
    fake_cuda.install(monkeypatch)
    pair = lanes(kinds)
    over = torch_streams.Streams(pair)
    announce, wait = over.raiser(Signal(7, 0, 1)), over.waiter(Signal(7, 0, 1))
    announce()
    wait()
    if kinds == ("gpu", "gpu"):
        assert pair[1].stream.clock[id(pair[0].stream)] == 1


def test_what_is_abandoned_never_comes() -> None:
    over = transport("cpu", "cpu")
    receive = over.receiver(message())
    over.abandon()
    with pytest.raises(torch_streams.AbandonedError):
        receive()


@pytest.mark.parametrize("name", ["convolutions", "dropout", "views"])
@pytest.mark.parametrize("kinds", [("gpu",), ("gpu", "gpu", "gpu"), ("gpu", "cpu", "gpu")])
def test_logical_gpus_compute_what_eager_does(monkeypatch: pytest.MonkeyPatch, name: str, kinds: tuple[str, ...]) -> None:
    workload = torch_steps.workload(name)
    plan = torch_steps.spread(workload.graph, torch_steps.devices(*kinds), seed=5)
    unplaced = workload.unplaced(3)
    fake_cuda.install(monkeypatch)
    with closing(TorchThreads(workload._traced, plan, workload._held)) as step:
        step.run(3)
        assert difference(step.outputs(), *unplaced).largest < 1e-5
        (times,) = step.op_times(1)
        assert times.end_ns.max() > 0
        shared = kinds.count("gpu") > 1
        assert [("logical devices" in words) == (shared and kind == "gpu") for words, kind in zip(step.described(), kinds, strict=True)]
