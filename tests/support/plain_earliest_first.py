"""ETF and SCT as plainly as may be: in every step all ready ops on all devices are looked at anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnnplace.baselines.scheduling.instance import Instance
from gnnplace.baselines.scheduling.sequence import costly
from gnnplace.graph import ComputationGraph

Busy = list[tuple[int, int]]


class LostError(Exception):
    """An op whose unit finds no device with room and links: what happens then is tested by hand."""


class Start(NamedTuple):
    """Compared in this order."""

    ns: int
    number: int
    time_ns: int
    device: int
    op: int


class Plain:
    def __init__(self, graph: ComputationGraph, given: Instance, favourite: list[int]):
        self.graph, self.given, self.favourite = graph, given, favourite
        self.costs = costly(graph)
        self.number = {int(op): number for number, op in enumerate(given.sequence)}
        self.end: dict[int, int] = {}
        self.home: dict[int, int] = {}
        self.arrival: dict[tuple[int, int], int] = {}
        self.channel: dict[int, Busy] = {}
        self.free = [[0] * int(count) for count in np.diff(given.streams)]
        self.awaited = [-1] * len(self.free)
        self.held = [0] * len(self.free)
        self.waited = False

    def run(self) -> tuple[list[int], int]:
        """The device of each unit and the length of the schedule."""
        while ready := [op for op in self.number if self.costs[op] and op not in self.end and self.is_ready(op)]:
            starts = [self.start(op, device) for op in ready for device in range(len(self.free))]
            if any(all(self.arrives(op, device) is None for device in range(len(self.free))) for op in ready):
                raise LostError
            first = min(start for start in starts if start is not None)
            self.place(first.op, first.device)
            self.awaited[first.device] = self.favourite[first.op]
        for op in self.number:
            if op not in self.end:
                self.settle(op, None)
                self.occupy(op, 0)
        return [self.home[unit] for unit in range(len(self.given.allowed))], max(self.end.values())

    def is_ready(self, op: int) -> bool:
        return all(src in self.end for src in self.sources(op) if self.costs[src])

    def sources(self, op: int) -> list[int]:
        return [int(self.graph.edge_src[edge]) for edge in self.inputs(op)]

    def inputs(self, op: int) -> list[int]:
        return [int(edge) for edge in self.graph.in_edges[self.graph.in_ptr[op] : self.graph.in_ptr[op + 1]]]

    def start(self, op: int, device: int) -> Start | None:
        arrived = self.arrives(op, device)
        if arrived is None:
            return None
        start = self.beside_child(op, device, max(arrived, min(self.free[device])))
        return None if start is None else Start(start, self.number[op], int(self.given.time_ns[op, device]), device, op)

    def beside_child(self, op: int, device: int, start: int) -> int | None:
        """Not before the favourite child that the device waits for, unless it is urgent."""
        child = self.awaited[device]
        if child in (-1, op) or not self.is_ready(child) or self.given.unit[child] in self.home:
            return start
        here = self.child_start(child, device)
        elsewhere = [time for other in range(len(self.free)) if (time := self.child_start(child, other)) is not None]
        if here is None or start > here or min(elsewhere) < here:
            return start
        others = [self.ready_ns(op, other) for other in range(len(self.free)) if self.given.allowed[self.given.unit[op], other]]
        urgent = max([start, *(time for time in others if time is not None)])
        self.waited |= urgent > start
        return urgent if urgent < here or urgent == start else None

    def child_start(self, child: int, device: int) -> int | None:
        arrived = self.arrives(child, device)
        return None if arrived is None else max(arrived, min(self.free[device]))

    def arrives(self, op: int, device: int) -> int | None:
        """When the inputs of an op are on a device on which it may run, None elsewhere."""
        unit = int(self.given.unit[op])
        ready = self.ready_ns(op, device)
        if unit in self.home:
            return (ready or 0) if self.home[unit] == device else None
        return ready if self.fits(unit, device) else None

    def fits(self, unit: int, device: int) -> bool:
        held = self.held[device] + int(self.given.held[unit])
        return bool(self.given.allowed[unit, device]) and held <= self.given.memory[device]

    def ready_ns(self, op: int, device: int, sends: bool = False) -> int | None:
        """When the inputs are there, None without a link; each message is estimated alone, unless they are sent."""
        times = [0]
        for edge in self.inputs(op):
            src, output = int(self.graph.edge_src[edge]), int(self.graph.edge_data[edge])
            there = self.home.get(int(self.given.unit[src]), device)
            link, time = int(self.given.link[there, device]), self.end.get(src, 0)
            if there == device:
                times.append(time)
            elif link == -1:
                if not sends:
                    return None
            elif output == -1:
                times.append(time + max(1, int(self.given.latency[link])))
            else:
                arrival = self.arrival.get((output, device)) or self.message(output, link, time, sends)
                times.append(arrival)
                if sends:
                    self.arrival[output, device] = arrival
        return max(times)

    def message(self, output: int, link: int, time: int, sends: bool) -> int:
        duration = int(self.given.transfer_ns[output, self.given.rate[link]])
        for channel in (int(self.given.channel[link]), int(self.given.receiver[link])):
            if channel != -1:
                busy = self.channel.setdefault(channel, [])
                for begin, end in busy:
                    if time + duration <= begin:
                        break
                    time = max(time, end)
                if sends:
                    busy.append((time, time + duration))
                    busy.sort()
                time += duration
        return time + int(self.given.latency[link])

    def place(self, op: int, device: int) -> None:
        """Runs an op where it starts first, and before it what costs nothing and has not been run."""
        start = self.start(op, device)
        assert start is not None
        self.settle(op, device)
        for src in reversed(self.sources(op)):
            self.bring(src, device)
        self.occupy(op, start.ns)

    def bring(self, op: int, device: int) -> None:
        if op not in self.end:
            for src in reversed(self.sources(op)):
                self.bring(src, device)
            self.settle(op, device)
            self.occupy(op, 0)

    def settle(self, op: int, device: int | None) -> None:
        unit = int(self.given.unit[op])
        if unit not in self.home:
            if device is None or not self.fits(unit, device):
                raise LostError
            self.home[unit] = device
            self.held[device] += int(self.given.held[unit])

    def occupy(self, op: int, earliest: int) -> None:
        device = self.home[int(self.given.unit[op])]
        ready = self.ready_ns(op, device, sends=True)
        assert ready is not None
        streams = self.free[device]
        stream = streams.index(min(streams))
        streams[stream] = self.end[op] = max(earliest, streams[stream], ready) + int(self.given.time_ns[op, device])
