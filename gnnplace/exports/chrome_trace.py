"""The simulated step in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing open.

A process of the trace is a device or a channel; a thread is one of its streams. Ops are slices with their module, phase
and micro-batch. Transfers are slices of their channel with their bytes. A counter shows the memory of each device.
Arrows follow the critical chain.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

from gnnplace.cluster import NO_CHANNEL
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report.chain_words import Step, micro_batch_of, stepped
from gnnplace.schedules.device_use import memory_use, streams

Event = dict[str, Any]


class _Track(NamedTuple):
    """Where a slice is drawn."""

    pid: int
    tid: int


def chrome_trace(problem: Problem, placement: Placement) -> str:
    """One JSON object. The format's times are microseconds; they are exact to the nanosecond.

    Raises ValueError if the placement has no step.
    """
    step = stepped(problem, placement)
    tracks = _tracks(step)
    events = [*_names(step), *_ops(step, tracks), *_transfers(step, tracks), *_memory(step), *_arrows(step, tracks)]
    about = {"graph": step.problem.graph.name, "cluster": step.problem.cluster.name, "step_time_ns": step.step_time_ns}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}) + "\n"


def _tracks(step: Step) -> list[_Track]:
    """The track of every op (the first free stream of its device), then of every transfer (its channel)."""
    problem, timeline = step.problem, step.timeline
    stream = streams(problem, step.placement.device, timeline).tolist()
    ops = [_Track(*track) for track in zip(step.placement.device.tolist(), stream, strict=True)]
    link = problem.cluster.link_index[timeline.transfer_src, timeline.transfer_dst]
    channels = problem.cluster.link_channel[link].tolist() if len(link) else []
    return ops + [_Track(problem.num_devices + channel, 0) for channel in channels]


def _names(step: Step) -> list[Event]:
    """Events that name and order the processes: devices, then channels."""
    cluster = step.problem.cluster
    channels = [f"links out of {name}" if kind == "device" else f"channel {name}" for kind, name in cluster.channels]
    names = [*cluster.device_names, *channels]
    named = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in enumerate(names)]
    return named + [
        {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}} for pid in range(len(names))
    ]


def _ops(step: Step, tracks: list[_Track]) -> list[Event]:
    """A slice for each op."""
    graph, timeline = step.problem.graph, step.timeline
    slices = []
    for op, name in enumerate(graph.op_names):
        about = {
            "module": step.modules.names[step.modules.module[op]],
            "kind": graph.kind[op],
            "phase": graph.phase[op],
            **_micro_batch(step, op),
        }
        start_ns, end_ns = int(timeline.start_ns[op]), int(timeline.end_ns[op])
        slices.append(_slice(name, graph.phase[op] or "step", tracks[op], start_ns, end_ns, about))
    return slices


def _transfers(step: Step, tracks: list[_Track]) -> list[Event]:
    """Slices of channels: for sending, and for receiving if the link has a receive channel."""
    problem, timeline = step.problem, step.timeline
    graph, cluster = problem.graph, problem.cluster
    slices = []
    for transfer, output in enumerate(timeline.transfer_output.tolist()):
        src, dst = int(timeline.transfer_src[transfer]), int(timeline.transfer_dst[transfer])
        name = f"{graph.op_names[graph.output_op[output]]} to {cluster.device_names[dst]}"
        about = {
            "bytes": int(graph.output_bytes[output]),
            "from": cluster.device_names[src],
            "to": cluster.device_names[dst],
            **_micro_batch(step, int(graph.output_op[output])),
        }
        ends = int(timeline.transfer_start_ns[transfer]), int(timeline.transfer_end_ns[transfer])
        slices.append(_slice(name, "transfer", tracks[problem.num_ops + transfer], *ends, about))
        channel = int(cluster.link_receive_channel[cluster.link_index[src, dst]])
        if channel != NO_CHANNEL:
            received = int(timeline.receive_start_ns[transfer]), int(timeline.receive_end_ns[transfer])
            slices.append(_slice(name, "transfer", _Track(problem.num_devices + channel, 0), *received, about))
    return slices


def _micro_batch(step: Step, op: int) -> dict[str, int]:
    """The micro-batch of an op, in a step of several."""
    return {} if (of := micro_batch_of(step.problem.graph, op)) is None else {"micro_batch": of}


def _slice(name: str, category: str, track: _Track, start_ns: int, end_ns: int, about: dict[str, Any]) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "pid": track.pid, "tid": track.tid,
        "ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3, "args": about,
    }  # fmt: skip


def _memory(step: Step) -> list[Event]:
    """A counter of bytes for each device."""
    counters: list[Event] = []
    for pid, use in enumerate(memory_use(step.problem, step.placement.device, step.timeline)):
        for time_ns, used in zip(use.time_ns.tolist(), use.bytes.tolist(), strict=True):
            counters.append({"ph": "C", "name": "memory", "pid": pid, "ts": time_ns / 1e3, "args": {"bytes": used}})
    return counters


def _arrows(step: Step, tracks: list[_Track]) -> list[Event]:
    """An arrow from each op or transfer of the critical chain to the next."""
    chain = step.waits.chain(int(step.timeline.end_ns.argmax()))[::-1].tolist()
    arrows: list[Event] = []
    for number, (before, after) in enumerate(pairwise(chain)):
        for ph, node in (("s", before), ("f", after)):
            at = step.waits.start_ns[node] / 1e3
            arrow = {
                "ph": ph,
                "name": "critical chain",
                "cat": "critical",
                "id": number,
                "ts": at,
                **tracks[node]._asdict(),
            }
            arrows.append(arrow | ({"bp": "e"} if ph == "f" else {}))
    return arrows
