"""How long messages take between two devices: the executor's own way of sending, for tensors of several sizes.

Between CPU devices the receiver adds up each message after it came, so that it lies in its cache as it does after an op has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from time import monotonic_ns

import torch

from gnnplace.execution.pinned import Worker, answers, usable_cores
from gnnplace.execution.shared_memory import SharedMemory, packed
from gnnplace.execution.torch_lanes import lanes
from gnnplace.execution.torch_program import Message
from gnnplace.execution.torch_streams import Streams
from gnnplace.measured_costs import LinkSample

SENDER, RECEIVER = 0, 1
ROUNDS, WARM_UP = 40, 8
FLOAT_BYTES = 4


def link_samples(sizes_bytes: Sequence[int]) -> tuple[LinkSample, ...]:
    """`ROUNDS` transfers of each size from the first usable core to the second.

    What is occupied is the sender, from the start of its copy to the raised flag; a transfer has arrived when the receiver sees that.
    """
    messages = _messages(sizes_bytes)
    shared = SharedMemory(*packed(messages), len(messages), 2)
    lives = (partial(_send, shared, messages), partial(_receive, shared, messages))
    workers = [Worker(name, core, None, life) for name, core, life in zip(("sender", "receiver"), usable_cores(), lives, strict=False)]
    try:
        started, arrived = answers(workers)
    finally:
        for worker in workers:
            worker.kill()
    return tuple(
        LinkSample(size, sent - start, arrival - start)
        for size, rounds, arrivals in zip(sizes_bytes, started, arrived, strict=True)
        for (start, sent), arrival in list(zip(rounds, arrivals, strict=True))[WARM_UP:]
    )


def gpu_link_samples(sizes_bytes: Sequence[int], kinds: Sequence[str]) -> tuple[LinkSample, ...]:
    """`ROUNDS` transfers of each size from a device to another, of which one at least is a GPU.

    What is occupied is the copy stream, between two events on it: from a CPU device with the copy into pinned memory, as long as a copy
    is queued behind no other. A transfer has arrived when the host has seen that, so without the hand-over between two threads.
    """
    pair, samples = lanes(kinds), []
    transport = Streams(pair)
    near, _ = transport.copy_streams(SENDER, RECEIVER)
    for message, size in zip(_messages(sizes_bytes), sizes_bytes, strict=True):
        value, copy = torch.rand(message.tensor.shape, device=pair[SENDER].device), transport.copier(message)
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for each in range(WARM_UP + ROUNDS):
            value.add_(1)  # as an op that has just made it
            torch.cuda.synchronize(value.device if value.is_cuda else None)
            start = monotonic_ns()
            begun.record(near)
            copy(value)
            done.record(near)
            near.synchronize()
            arrival = monotonic_ns() - start
            if each >= WARM_UP:
                samples.append(LinkSample(size, min(arrival, round(begun.elapsed_time(done) * 1e6)), arrival))
    return tuple(samples)


def _messages(sizes_bytes: Sequence[int]) -> list[Message]:
    graph = torch.fx.Graph()
    tensors = [torch.empty(size // FLOAT_BYTES, device="meta") for size in sizes_bytes]
    return [Message(number, graph.placeholder(f"size_{number}"), SENDER, RECEIVER, tensor) for number, tensor in enumerate(tensors)]


def _send(shared: SharedMemory, messages: Sequence[Message], connection: Connection) -> None:
    torch.set_num_threads(1)
    found = []
    for message in messages:
        value, send = torch.rand(message.tensor.shape), shared.sender(message)
        rounds = []
        for _ in range(WARM_UP + ROUNDS):
            value.add_(1)  # as an op that has just made it
            shared.step += 1
            shared.meet(SENDER)
            start = monotonic_ns()
            send(value)
            rounds.append((start, monotonic_ns()))
        found.append(rounds)
    connection.send(found)
    connection.recv()


def _receive(shared: SharedMemory, messages: Sequence[Message], connection: Connection) -> None:
    torch.set_num_threads(1)
    found = []
    for message in messages:
        receive, arrivals = shared.receiver(message), []
        for _ in range(WARM_UP + ROUNDS):
            shared.step += 1
            shared.meet(RECEIVER)
            value = receive()
            arrivals.append(monotonic_ns())
            value.sum()
        found.append(arrivals)
    connection.send(found)
    connection.recv()
