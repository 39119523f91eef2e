"""One step as a constraint program, a relaxation of docs/execution-model.md.

The variables are the devices of ops and the starts of ops and transfers.

The program models the time of every op alone on its device, streams, precedence, one transfer for each output and
destination on its channel (and receive channel, and the streams of a device that copies by itself), latencies, control
delays, missing links, colocation and allowed devices. Its memory has persistent bytes, workspaces, and every buffer
from its first allocation to its last use.

Every simulated step of a feasible placement satisfies the program, because it relaxes the rest:

- Devices and channels may idle on purpose and serve in any order (`queues` orders channels).
- An op takes its time alone, even while others use its memory.
- A received buffer has the bytes of the smallest output of its root.
- Times are rounded down to the unit of time. Sizes are rounded down, and memories up, to the unit of memory. Starts
  rounded down keep every order and overlap.

So the optimum of the program is a lower bound on every simulated step. The simulator computes the step time and peaks
of its placement.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.cluster import NO_CHANNEL, NO_LINK
from gnnplace.graph import CONTROL
from gnnplace.problems import Problem

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

LONGEST = 2**40  # units of time in a step, and 2^20 units of memory: the product fits 64 bits
LARGEST = 2**20


@dataclass(frozen=True)
class Sent:
    """The transfer of an output to a device.

    `by[a]` is true if it comes from device a. `received` is the start on the receive channel, if any.
    """

    present: IntVar
    start: IntVar
    received: IntVar
    by: dict[int, IntVar]
    leaves: Any  # linear expressions: the times at which it leaves its channel and arrives
    arrives: Any


@dataclass(frozen=True)
class ConstraintProgram:
    """The variables; times are in units of `unit_ns`.

    `stands[i][d]` is true if op i is on device d. The ops of a unit share these variables.
    """

    model: CpModel
    problem: Problem
    unit_ns: int
    horizon: int
    stands: list[list[IntVar]]
    start: list[IntVar]
    end: list[Any]
    step: IntVar
    sent: dict[tuple[int, int], Sent] = field(default_factory=dict)  # by output and destination
    # intervals on the streams of a device
    device_load: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    channel_load: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def units(self, time_ns: int | np.int64) -> int:
        """A time in units of the program, rounded down."""
        return int(time_ns) // self.unit_ns

    def together(self, op: int, other: int) -> bool:
        """Whether two ops belong to the same unit."""
        return self.stands[op] is self.stands[other]


def write(
    model: CpModel,
    problem: Problem,
    unit: Int64[np.ndarray, " ops"],
    legal: Bool[np.ndarray, "units devices"],
    horizon_ns: int,
) -> ConstraintProgram:
    """The program of a problem with the given units, for steps of at most `horizon_ns`."""
    unit_ns = -(-horizon_ns // LONGEST)
    horizon = horizon_ns // unit_ns
    stands = [[model.new_bool_var("") if option else model.new_constant(0) for option in row] for row in legal]
    for row in stands:
        model.add_exactly_one(row)
    start = [model.new_int_var(0, horizon, "") for _ in unit]
    times = problem.time_ns // unit_ns
    end = [
        start[i] + sum(int(time) * on for time, on in zip(times[i], stands[u], strict=True)) for i, u in enumerate(unit)
    ]
    program = ConstraintProgram(
        model, problem, unit_ns, horizon, [stands[u] for u in unit], start, end, model.new_int_var(0, horizon, "")
    )
    _add_ops(program, times)
    _add_precedence(program)
    _add_transfers(program)
    _add_capacities(program)
    model.minimize(program.step)
    return program


def _add_ops(program: ConstraintProgram, times: Int64[np.ndarray, "ops devices"]) -> None:
    model = program.model
    for i, start in enumerate(program.start):
        model.add(program.step >= program.end[i])
        for d, on in enumerate(program.stands[i]):
            program.device_load[d].append(model.new_optional_fixed_size_interval_var(start, int(times[i, d]), on, ""))
    for d, streams in enumerate(program.problem.cluster.streams.tolist()):
        model.add(streams * program.step >= sum(int(times[i, d]) * row[d] for i, row in enumerate(program.stands)))


def _add_precedence(program: ConstraintProgram) -> None:
    """A consumer starts after its inputs end, and after the delay of a control edge between devices.

    Edges between devices need a link.
    """
    graph, cluster, model = program.problem.graph, program.problem.cluster, program.model
    for src, output, dst in zip(
        graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True
    ):
        model.add(program.start[dst] >= program.end[src])
        for (a, b), link in np.ndenumerate(cluster.link_index):
            if a == b or program.together(src, dst):
                continue
            both = [program.stands[src][a], program.stands[dst][b]]
            if link == NO_LINK:
                model.add_bool_or([on.negated() for on in both])
            elif output == CONTROL:
                delay = program.units(max(1, cluster.link_latency_ns[link]))
                model.add(program.start[dst] >= program.end[src] + delay).only_enforce_if(both)


def _add_transfers(program: ConstraintProgram) -> None:
    graph = program.problem.graph
    consumers: dict[int, list[int]] = defaultdict(list)
    for output, dst in zip(graph.edge_data.tolist(), graph.edge_dst.tolist(), strict=True):
        if output >= 0 and not program.together(dst, int(graph.output_op[output])):
            consumers[output].append(dst)
    for output, takers in consumers.items():
        for device in range(program.problem.num_devices):
            _add_transfer(program, output, takers, device)


def _add_transfer(program: ConstraintProgram, output: int, takers: list[int], there: int) -> None:
    """Adds the transfer of an output to one device.

    It is present if and only if a consumer is there and the producer is elsewhere. The times of an absent transfer may
    equal the end of the producer, so that they delay nothing.
    """
    model, problem, cluster = program.model, program.problem, program.problem.cluster
    op = int(problem.graph.output_op[output])
    here = [a for a in range(problem.num_devices) if a != there and cluster.link_index[a, there] != NO_LINK]
    by = {a: model.new_bool_var("") for a in here}
    present = model.new_bool_var("")
    model.add(sum(by.values()) == present)
    model.add_bool_or([program.stands[taker][there] for taker in takers]).only_enforce_if(present)
    start, received = (model.new_int_var(0, program.horizon, "") for _ in range(2))
    occupied: Any = 0
    rest: Any = 0
    for a, on in by.items():
        model.add_implication(on, program.stands[op][a])
        link = int(cluster.link_index[a, there])
        duration = program.units(problem.transfer_ns[output, problem.link_rate[link]])
        _occupy(program, int(cluster.link_channel[link]), start, duration, on)
        occupied += duration * on
        receiver = int(cluster.link_receive_channel[link])
        if receiver != NO_CHANNEL:
            _occupy(program, receiver, received, duration, on)
        rest += (duration * (receiver != NO_CHANNEL) + program.units(cluster.link_latency_ns[link])) * on
    model.add(start >= program.end[op])
    model.add(received >= start + occupied)
    for taker in takers:
        model.add_bool_or([program.stands[taker][there].negated(), program.stands[op][there], present])
        model.add(program.start[taker] >= received + rest).only_enforce_if(program.stands[taker][there])
    program.sent[output, there] = Sent(present, start, received, by, start + occupied, received + rest)


def _occupy(program: ConstraintProgram, channel: int, start: IntVar, duration: int, on: IntVar) -> None:
    interval = program.model.new_optional_fixed_size_interval_var(start, duration, on, "")
    program.channel_load[channel].append(interval)
    for device in np.flatnonzero(program.problem.cluster.device_channel == channel):
        program.device_load[int(device)].append(interval)


def _add_capacities(program: ConstraintProgram) -> None:
    for load in program.channel_load.values():
        program.model.add_no_overlap(load)
    for device, load in program.device_load.items():
        streams = int(program.problem.cluster.streams[device])
        if streams == 1:
            program.model.add_no_overlap(load)
        else:
            program.model.add_cumulative(load, [1] * len(load), streams)
