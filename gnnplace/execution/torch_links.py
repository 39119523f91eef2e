"""How long messages take between two devices: the executor's own way of sending.

Between CPU devices the workload's own messages are timed in its own steps, under placements drawn at random: in a loop of nothing but
sends, what is sent and where it goes lie in the caches, and a message takes a quarter of what it takes in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

import numpy as np
import torch

from gnnplace.cluster import Device
from gnnplace.execution.torch_device import Held
from gnnplace.execution.torch_lanes import lanes
from gnnplace.execution.torch_processes import TorchProcesses
from gnnplace.execution.torch_program import Message
from gnnplace.execution.torch_streams import Streams
from gnnplace.execution.workload import Plan
from gnnplace.frontends.torch import TracedStep
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.measured_costs import LinkSample

SENDER, RECEIVER = 0, 1
ROUNDS, WARM_UP = 40, 8  # of a size where a GPU copies
PLACEMENTS, STEPS, MOST_SAMPLES = 3, 15, 1000  # of a step on CPU devices
FLOAT_BYTES = 4


def link_samples(step: TracedStep, devices: tuple[Device, Device], held: Held) -> tuple[LinkSample, ...]:
    """Each message of a few placements of the step, medians over steps; `MOST_SAMPLES` of them where there are more.

    Every colocation group, and every op without one, stands on either device with equal chance. Raises MeasurementError as
    `TorchProcesses` does.
    """
    generator = np.random.default_rng(0)
    samples: list[LinkSample] = []
    for _ in range(PLACEMENTS):
        placed = TorchProcesses(step, Plan(devices, _drawn(step.graph, generator), step.graph.order), held)
        try:
            placed.run(WARM_UP)
            samples += placed.messages(STEPS)
        finally:
            placed.close()
    chosen = generator.permutation(len(samples))[:MOST_SAMPLES]
    return tuple(samples[place] for place in sorted(chosen.tolist()))


def _drawn(graph: ComputationGraph, generator: np.random.Generator) -> np.ndarray:
    groups = graph.colocation.index
    device = generator.integers(2, size=graph.num_ops, dtype=np.int32)
    of_group = generator.integers(2, size=groups.max(initial=NONE) + 1, dtype=np.int32)
    device[groups != NONE] = of_group[groups[groups != NONE]]
    return device


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
    return [
        Message(number, graph.placeholder(f"value_{number}"), SENDER, RECEIVER, tensor, number) for number, tensor in enumerate(tensors)
    ]
