"""Measures how long a tensor takes from one server process to another, and the CPU time of the transfer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from gnnplace.cluster import Device
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.tensorflow.servers import Template, layout
from gnnplace.execution.tensorflow.session import placed_session
from gnnplace.execution.workload import LINK_SIZES_BYTES
from gnnplace.frontends.tensorflow.step import Machine
from gnnplace.isolation.linux import processor_ns

v1 = tf.compat.v1

REPETITIONS = 15
AFTERWARDS_S = 1e-3  # the work of servers after a step counts
SENT_BYTES = 2**27  # at most this much in one step


def profile_link(
    devices: tuple[Device, Device], machine: Machine, template: Template, sizes: Sequence[int] = LINK_SIZES_BYTES
) -> tuple[LinkSample, ...]:
    """Transfers from the first device to the second: the arrival time of a single transfer, and how long it occupies
    each side, in ns.

    Between cores a transfer occupies each side for half of the CPU time of both servers. Several transfers sent at once
    would wake a core only once and show half of that. With a GPU, several transfers are sent at once; each occupies a
    side for an equal part of the delay of the last.
    """
    servers = layout(devices, machine)
    started = template.start(servers.orders)
    try:
        addresses = [server.address for server in started]
        pids = [server.pid for server in started] if all(device.kind == "cpu" for device in devices) else []
        return tuple(_time(size, servers.devices, addresses, pids) for size in sizes)
    finally:
        template.stop(started)


def _time(size: int, devices: Sequence[str], addresses: Sequence[str], pids: Sequence[int]) -> LinkSample:
    """The transfer of one size. `pids` are the servers' processes if both are cores, else none."""
    many = max(2, min(16, SENT_BYTES // size) // 2 * 2)
    graph = tf.Graph()
    with graph.as_default():
        with tf.device(devices[0]):
            source = tf.fill([size], tf.constant(1, tf.uint8))
        steps = [_hops(source, devices, hops) for hops in (2, 2 + many)]  # both use both servers
        if not pids:
            steps += [_at_once(source, devices, tensors) for tensors in (1, many)]
    with placed_session(graph, addresses) as session:
        (few, little), (more, much), *together = _medians([session.make_callable(step) for step in steps], pids)
    if pids:
        occupied = (much - little) // (2 * many)
    else:
        (one, _), (all_at_once, _) = together
        occupied = (all_at_once - one) // (many - 1)
    occupied = max(0, occupied)  # on a busy machine the difference may be negative
    return LinkSample(size, occupied, max((more - few) // many, occupied))


def _hops(tensor: tf.Tensor, devices: Sequence[str], hops: int) -> tf.Operation:
    """A step that sends a tensor back and forth between two devices, `hops` times in all."""
    for hop in range(hops):
        with tf.device(devices[(hop + 1) % 2]):
            tensor = tf.raw_ops.Identity(input=tensor)
    with tf.device(tensor.device):
        return tf.group(tensor)


def _at_once(tensor: tf.Tensor, devices: Sequence[str], tensors: int) -> tf.Operation:
    """A step that sends this many tensors, which are ready at the same time, once each."""
    arrived = []
    for _ in range(tensors):
        with tf.device(devices[0]):
            message = tf.raw_ops.Identity(input=tensor)
        with tf.device(devices[1]):
            arrived.append(tf.raw_ops.Identity(input=message))
    with tf.device(devices[1]), tf.control_dependencies(arrived):
        return tf.no_op()


def _medians(steps: Sequence[Callable[[], object]], pids: Sequence[int]) -> list[tuple[int, int]]:
    """For each step, the medians of its duration and of the CPU time of these processes, in ns.

    The steps run in turns. The first two turns don't count.
    """
    samples: list[list[tuple[int, int]]] = [[] for _ in steps]
    for repetition in range(REPETITIONS + 2):
        for step, step_samples in zip(steps, samples, strict=True):
            begin, used = time.perf_counter_ns(), sum(map(processor_ns, pids))
            step()
            lasted = time.perf_counter_ns() - begin
            time.sleep(AFTERWARDS_S)
            if repetition >= 2:
                step_samples.append((lasted, sum(map(processor_ns, pids)) - used))
    return [tuple(np.median(step_samples, axis=0).astype(int).tolist()) for step_samples in samples]
