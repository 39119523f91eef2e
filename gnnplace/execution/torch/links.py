"""How long messages take between two devices with the executor's transport.

Between CPU devices the workload's messages are timed in its steps, under random placements. In a loop of sends alone,
source and destination stay in the caches, and a small message takes a quarter of its time in a step. The loop times
larger messages than the step sends, which no cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from time import monotonic_ns

import numpy as np
import torch
from jaxtyping import Int32

from gnnplace.cluster import MAX_BYTES, Device
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.torch.lanes import lanes
from gnnplace.execution.torch.processes import TorchProcesses
from gnnplace.execution.torch.program import DeviceProgram, Message, Receive, Send
from gnnplace.execution.torch.shared_memory import SharedMemory
from gnnplace.execution.torch.slots import slots
from gnnplace.execution.torch.streams import Streams
from gnnplace.execution.torch.values import Held
from gnnplace.execution.workload import LINK_SIZES_BYTES, ExecutionPlan
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.graph import NONE
from gnnplace.isolation.worker import Worker, answers, usable_cores

SENDER, RECEIVER = 0, 1
ROUNDS, WARM_UP = 40, 8  # transfers of a size in a loop; steps, or transfers of a GPU, before those that count
PLACEMENTS, STEPS, MOST_SAMPLES = 3, 15, 1000  # of a step on CPU devices
APART_BYTES = 2**24  # written between two messages to one slot, if a size allows
FLOAT_BYTES = 4


def link_samples(step: TracedStep, devices: tuple[Device, Device], held: Held) -> tuple[LinkSample, ...]:
    """The messages of a few placements of the step, and a loop of transfers for each of `LINK_SIZES_BYTES` above them.

    A message's time is the median over steps; at most `MOST_SAMPLES` messages count. Placements are random: each
    colocation group, and each other op, is on either device with equal probability, whatever memory the device has.
    Raises MeasurementError as `TorchProcesses` does.
    """
    generator, roomy = np.random.default_rng(0), tuple(replace(device, memory_bytes=MAX_BYTES) for device in devices)
    samples: list[LinkSample] = []
    for _ in range(PLACEMENTS):
        placed = TorchProcesses(step, ExecutionPlan(roomy, _drawn(step, generator), step.graph.order), held)
        try:
            placed.run(WARM_UP)
            samples += placed.messages(STEPS)
        finally:
            placed.close()
    chosen = generator.permutation(len(samples))[:MOST_SAMPLES]
    largest = max((sample.bytes for sample in samples), default=0)
    return (
        *(samples[place] for place in sorted(chosen.tolist())),
        *_in_a_loop([size for size in LINK_SIZES_BYTES if size > largest]),
    )


def _drawn(step: TracedStep, generator: np.random.Generator) -> Int32[np.ndarray, " ops"]:
    """A random device for each colocation group and for each op outside groups."""
    group = step.graph.colocation.index
    alone = len(step.graph.colocation.values) + np.arange(step.graph.num_ops)
    _, unit = np.unique(np.where(group == NONE, alone, group), return_inverse=True)
    return generator.integers(2, size=unit.max() + 1, dtype=np.int32)[unit]


def _in_a_loop(sizes_bytes: Sequence[int]) -> tuple[LinkSample, ...]:
    """`ROUNDS` transfers of each size from the first usable core to the second. The receiver sums each message, which
    reads every byte.

    A transfer occupies the sender from the start of its copy until it raises the flag. It has arrived when the receiver
    sees the flag.
    """
    sizes = [size // FLOAT_BYTES * FLOAT_BYTES for size in sizes_bytes]
    slot_sizes = [size for size in sizes for _ in range(max(1, min(ROUNDS, APART_BYTES // size)))]
    messages = _messages(slot_sizes)
    ends = (
        DeviceProgram(SENDER, (), tuple(map(Send, messages))),
        DeviceProgram(RECEIVER, (), tuple(map(Receive, messages))),
    )
    shared = SharedMemory(slots(ends), len(messages), len(ends))
    sent = messages + [
        turn for size in sizes for turn in _turns([message for message in messages if message.bytes == size])
    ]
    lives = (partial(_send, shared, sent), partial(_receive, shared, sent))
    workers = [
        Worker(name, core, None, life)
        for name, core, life in zip(("sender", "receiver"), usable_cores(), lives, strict=False)
    ]
    try:
        started, arrived = answers(workers)
    finally:
        for worker in workers:
            worker.kill()
    samples = [
        LinkSample(m.bytes, end - start, arrival - start)
        for m, (start, end), arrival in zip(sent, started, arrived, strict=True)
    ]
    return tuple(samples[len(messages) :])  # the first to each slot also maps its memory


def _turns(messages: Sequence[Message]) -> list[Message]:
    """`ROUNDS` messages, each in turn."""
    return [messages[turn % len(messages)] for turn in range(ROUNDS)]


def gpu_link_samples(sizes_bytes: Sequence[int], kinds: Sequence[str]) -> tuple[LinkSample, ...]:
    """`ROUNDS` transfers of each size from one device to another, at least one of them a GPU.

    A transfer occupies the copy stream, between two events on it, which includes a CPU device's copy into pinned memory
    if no other copy is queued. It has arrived when the host sees its end, without the hand-over between two threads.
    """
    pair, samples = lanes(kinds), []
    transport = Streams(pair)
    near, _ = transport.copy_streams(SENDER, RECEIVER)
    for message, size in zip(_messages(sizes_bytes), sizes_bytes, strict=True):
        value, copy = torch.rand(message.tensor.shape, device=pair[SENDER].device), transport.copier(message)
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for transfer in range(WARM_UP + ROUNDS):
            value.add_(1)  # as if an op had just made it
            torch.cuda.synchronize(value.device if value.is_cuda else None)
            start = monotonic_ns()
            begun.record(near)
            copy(value)
            done.record(near)
            near.synchronize()
            arrival = monotonic_ns() - start
            if transfer >= WARM_UP:
                samples.append(LinkSample(size, min(arrival, round(begun.elapsed_time(done) * 1e6)), arrival))
    return tuple(samples)


def _messages(sizes_bytes: Sequence[int]) -> list[Message]:
    """A message of each size, from the sender to the receiver."""
    graph = torch.fx.Graph()
    tensors = [torch.empty(size // FLOAT_BYTES, device="meta") for size in sizes_bytes]
    return [
        Message(number, graph.placeholder(f"value_{number}"), SENDER, RECEIVER, tensor, number)
        for number, tensor in enumerate(tensors)
    ]


def _send(shared: SharedMemory, messages: Sequence[Message], connection: Connection) -> None:
    """The sender's process: reports the start and end of each sending."""
    torch.set_num_threads(1)
    spans_ns = []
    for message in messages:
        value, send = torch.rand(message.tensor.shape), shared.sender(message)  # as if an op had just made it
        shared.step += 1
        shared.meet(SENDER)
        start = monotonic_ns()
        send(value)
        spans_ns.append((start, monotonic_ns()))
    connection.send(spans_ns)
    connection.recv()


def _receive(shared: SharedMemory, messages: Sequence[Message], connection: Connection) -> None:
    """The receiver's process: reports the arrival of each message."""
    torch.set_num_threads(1)
    arrivals_ns = []
    for message in messages:
        receive = shared.receiver(message)
        shared.step += 1
        shared.meet(RECEIVER)
        value = receive()
        arrivals_ns.append(monotonic_ns())
        value.sum()
    connection.send(arrivals_ns)
    connection.recv()
