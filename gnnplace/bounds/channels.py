"""The channels bound: the load bound with the time that channels need for transfers that no placement avoids.

If the state (parameters, moments of an optimiser) fits no class of devices alone, some of it is on another class. Then
its readers run there too, or it is sent. The load bound lets units be split into fractions. Here, an output that
touches state leaves a class of devices with at least the fraction of its producer there minus the fraction of each
reader there. A linear program:

    minimise T  over x[u, c], the fraction of unit u on class c (they sum to 1 over c),
                and z[o, c], the fraction of output o that leaves class c, such that
      time of the units on c                        <= T * streams of c
      time of the leaving outputs on channels of c  <= T * channels out of c
      bytes of the units and of the rest on c       <= memory of c
      x[producer of o, c] - x[reader of o, c]       <= z[o, c]  for each reader of o

The rest is what is alive at once on any devices (`memory.need`). Any non-negative prices of the rows prove a bound
(weak duality), so the accuracy of the solver can't make it wrong (`_value_ns`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.bounds.memory import need
from gnnplace.bounds.relaxed import NEVER, Relaxed
from gnnplace.graph import NONE
from gnnplace.units.units import persistent_bytes

RATIOS = 100  # units without state are added up if the ratios of their times on classes agree up to 1 / RATIOS
MOST_READS = 20_000  # if there are more reads, only those of the largest outputs count
LIMIT = {"time_limit": 20.0}  # of the solver, in seconds; without its prices there is no bound
ERROR = 1e-9  # an upper bound on rounding errors, as a share of the sum of all magnitudes


class ChannelProgram(NamedTuple):
    """The coefficients of the program. Times are in ns.

    `reads[:, i]` are an output, the unit that produces it and a unit that reads it.
    """

    time_ns: Float[np.ndarray, "units classes"]
    legal: Bool[np.ndarray, "units classes"]
    held: Float[np.ndarray, "units classes"]  # as a share of the memory of the class
    rest: Float[np.ndarray, " classes"]  # the whole rest as a share of the memory of the class
    leaving_ns: Float[np.ndarray, "outputs classes"]
    reads: Int64[np.ndarray, "3 reads"]
    streams: Float[np.ndarray, " classes"]
    channels: Float[np.ndarray, " classes"]


class RowPrices(NamedTuple):
    """A price for each row."""

    time: Float[np.ndarray, " classes"]
    channel: Float[np.ndarray, " classes"]
    memory: Float[np.ndarray, " classes"]
    read: Float[np.ndarray, "reads classes"]


def channels_ns(relaxed: Relaxed) -> int:
    """The bound in ns; 0 if each class of devices alone can hold everything, or nothing is read."""
    held = need(relaxed.graph)
    if (relaxed.memory_bytes.astype(np.float64) * relaxed.num_devices >= held.total_bytes).all():
        return 0
    lp = program(relaxed, held.alive_bytes)
    return proved_ns(lp) if lp.leaving_ns.size else 0


def proved_ns(lp: ChannelProgram, limit: Mapping[str, int | float] = LIMIT) -> int:
    """The bound in ns that the solver's prices prove; 0 if it finds none within this limit."""
    prices = _solved(lp, limit)
    return 0 if prices is None else _value_ns(lp, prices)


def program(relaxed: Relaxed, rest_bytes: int) -> ChannelProgram:
    """The program of a relaxed problem; `rest_bytes` are alive at once besides persistent bytes."""
    state = persistent_bytes(relaxed.graph, relaxed.units)
    reads = _reads(relaxed, state)
    outputs, reads[0] = np.unique(reads[0], return_inverse=True)
    leaving_ns, channels = _leaving(relaxed, outputs)
    return of_units(relaxed, unit_times(relaxed), state, reads, leaving_ns, channels, rest_bytes)


def unit_times(relaxed: Relaxed) -> Float[np.ndarray, "units classes"]:
    """The time of each unit on each class; infinite where it is forbidden."""
    time_ns = np.zeros((relaxed.units.num_units, relaxed.num_classes))
    np.add.at(time_ns, relaxed.units.unit, np.where(relaxed.time_ns < NEVER, relaxed.time_ns, np.inf))
    return time_ns


def of_units(
    relaxed: Relaxed,
    time_ns: Float[np.ndarray, "units classes"],
    state: Int64[np.ndarray, " units"],
    reads: Int64[np.ndarray, "3 reads"],
    leaving_ns: Float[np.ndarray, "outputs classes"],
    channels: Float[np.ndarray, " classes"],
    rest_bytes: int,
    ratios: int = RATIOS,
) -> ChannelProgram:
    """The program of units with these times and bytes of state.

    Units without state that read nothing are added up if the ratios of their times agree up to 1 / `ratios`.
    """
    capacity = np.maximum(1.0, relaxed.memory_bytes * relaxed.num_devices.astype(np.float64))
    legal, reads = np.isfinite(time_ns), reads.copy()
    alone = state == 0
    alone[reads[1:]] = False
    apart = np.flatnonzero(~alone)
    time_ns = np.where(legal, time_ns, 0.0)
    times, may = _summed(time_ns[alone], legal[alone], ratios)
    reads[1:] = np.searchsorted(apart, reads[1:])
    return ChannelProgram(
        time_ns=np.concatenate([time_ns[apart], times]), legal=np.concatenate([legal[apart], may]),
        held=np.concatenate([state[apart], np.zeros(len(times))])[:, None] / capacity, rest=rest_bytes / capacity,
        leaving_ns=leaving_ns, reads=reads, streams=(relaxed.streams * relaxed.num_devices).astype(np.float64),
        channels=channels,
    )  # fmt: skip


def _crossing(relaxed: Relaxed) -> Int64[np.ndarray, "2 edges"]:
    """The outputs that an edge can carry to another device, and their readers: ops of another unit."""
    graph, unit = relaxed.graph, relaxed.units.unit
    edges = (graph.edge_data != NONE) & (unit[graph.edge_src] != unit[graph.edge_dst])
    return np.stack([graph.edge_data[edges], graph.edge_dst[edges]]).astype(np.int64)


def _reads(relaxed: Relaxed, state: Int64[np.ndarray, " units"]) -> Int64[np.ndarray, "3 reads"]:
    """The roots that a unit with state produces or reads, with their producer and reader; the largest, if too many."""
    graph, unit = relaxed.graph, relaxed.units.unit
    read, by = _crossing(relaxed)
    root = graph.output_root[read].astype(np.int64)
    producer, reader = unit[graph.output_op[root]], unit[by]
    sent = np.full(len(graph.output_bytes), np.iinfo(np.int64).max)
    np.minimum.at(sent, root, graph.output_bytes[read])
    counts = (producer != reader) & ((state[producer] > 0) | (state[reader] > 0)) & (sent[root] > 0)
    reads = np.unique(np.stack([root, producer, reader])[:, counts], axis=1).astype(np.int64)
    return reads[:, np.argsort(-sent[reads[0]], kind="stable")[:MOST_READS]]


def _leaving(
    relaxed: Relaxed, roots: Int64[np.ndarray, " outputs"]
) -> tuple[Float[np.ndarray, "outputs classes"], Float[np.ndarray, " classes"]]:
    """The least time that each root occupies a channel to another class, and the number of such channels by class.

    It is the time of the smallest output of the root that is read, on the fastest channel.
    """
    problem, graph = relaxed.problem, relaxed.graph
    read = np.unique(_crossing(relaxed)[0])
    read = read[np.isin(graph.output_root[read], roots)]
    place = np.searchsorted(roots, graph.output_root[read])
    leaving = np.full((len(roots), relaxed.num_classes), float(NEVER))
    channels: list[set[int]] = [set() for _ in range(relaxed.num_classes)]
    class_of = dict(zip(problem.cluster.device_names, relaxed.class_of.tolist(), strict=True))
    for number, link in enumerate(problem.cluster.links):
        here = class_of[link.src]
        if here != class_of[link.dst]:
            channels[here].add(int(problem.cluster.link_channel[number]))
            np.minimum.at(leaving[:, here], place, problem.transfer_ns[read, problem.link_rate[number]])
    return leaving, np.array([len(each) for each in channels], dtype=np.float64)


def _summed(
    time_ns: Float[np.ndarray, "units classes"], legal: Bool[np.ndarray, "units classes"], ratios: int
) -> tuple[Float[np.ndarray, "sums classes"], Bool[np.ndarray, "sums classes"]]:
    """The sums of units whose times have the same ratios. The least time is exact, the others are rounded down."""
    least = np.where(legal, time_ns, np.inf).min(axis=1, initial=np.inf)
    ratio = np.where(legal, np.floor(ratios * np.log(np.maximum(time_ns, 1.0) / np.maximum(least, 1.0)[:, None])), -1.0)
    kinds, of = np.unique(ratio, axis=0, return_inverse=True)
    total = np.bincount(of.ravel(), weights=least, minlength=len(kinds))
    return np.exp(np.maximum(kinds, 0.0) / ratios) * total[:, None] * (1 - ERROR), kinds >= 0


def _solved(lp: ChannelProgram, options: Mapping[str, int | float] = LIMIT) -> RowPrices | None:
    """The prices of the rows at the solver's optimum; None if it finds none under these options."""
    from scipy.optimize import linprog  # with sparse arrays half a second, which most steps needn't wait
    from scipy.sparse import csr_array

    (units, classes), reads = lp.time_ns.shape, lp.reads.shape[1]
    step = (units + len(lp.leaving_ns) + 1) * classes  # the column of T, the last one
    scale = max(1.0, float(np.where(lp.legal, lp.time_ns, np.inf).min(axis=1).sum()) / lp.streams.sum())
    table = csr_array(_entries(lp, scale), shape=((3 + reads) * classes, step + 1))
    limit = np.concatenate([np.zeros(2 * classes), np.ones(classes), np.zeros(classes * reads)])
    parts = np.concatenate([np.arange(units * classes), np.arange(step - classes, step)])  # of units, and of the rest
    whole = csr_array((np.ones(len(parts)), (np.arange(len(parts)) // classes, parts)), shape=(units + 1, step + 1))
    most = np.concatenate([lp.legal.ravel().astype(np.float64), np.ones(step - units * classes), [np.inf]])
    solved = linprog(
        np.eye(1, step + 1, step)[0], A_ub=table, b_ub=limit, A_eq=whole, b_eq=np.ones(units + 1),
        bounds=np.stack([np.zeros(step + 1), most], axis=1), method="highs", options=dict(options),
    )  # fmt: skip
    if solved.status != 0:
        return None
    price = np.maximum(0.0, -solved.ineqlin.marginals)
    time, channel, memory = price[: 3 * classes].reshape(3, classes)
    return RowPrices(time / scale, channel / scale, memory, price[3 * classes :].reshape(classes, reads).T)


def _entries(lp: ChannelProgram, scale: float) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """The coefficients of the inequalities: values, and their rows and columns.

    Times are divided by `scale`, since the tolerances of the solver are absolute.

    Rows: the time of each class, of its channels, its memory, its reads. Columns: x, z, the rest, T.
    """
    (units, classes), outputs, reads = lp.time_ns.shape, len(lp.leaving_ns), lp.reads.shape[1]
    x = np.arange(units * classes).reshape(units, classes)
    z = x.size + np.arange(outputs * classes).reshape(outputs, classes)
    rest = x.size + z.size + np.arange(classes)
    step = x.size + z.size + classes
    entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def fill(row: np.ndarray | int, column: np.ndarray | int, value: np.ndarray | float) -> None:
        rows, columns, values = np.broadcast_arrays(row, column, value)
        entries.append((rows.ravel(), columns.ravel(), values.ravel()))

    output, producer, reader = lp.reads
    for c in range(classes):
        time, channel, memory = range(c, 3 * classes, classes)
        fill(time, x[:, c], lp.time_ns[:, c] / scale)
        fill(time, step, -lp.streams[c])
        fill(channel, z[:, c], lp.leaving_ns[:, c] / scale)
        fill(channel, step, -lp.channels[c])
        fill(memory, x[:, c], lp.held[:, c])
        fill(memory, rest[c : c + 1], lp.rest[c])
        read = 3 * classes + c * reads + np.arange(reads)
        fill(read, x[producer, c], 1.0)
        fill(read, x[reader, c], -1.0)
        fill(read, z[output, c], -1.0)
    row, column, value = (np.concatenate(each) for each in zip(*entries, strict=True))
    return value, (row, column)


def _value_ns(lp: ChannelProgram, prices: RowPrices) -> int:
    """The bound that prices prove: the cost of the cheapest fractions minus the value of all memory, per nanosecond."""
    output, producer, reader = lp.reads
    cost = lp.time_ns * prices.time + lp.held * prices.memory
    magnitude = np.where(lp.legal, cost, 0.0).sum() + 2 * prices.read.sum() + prices.memory.sum()
    np.add.at(cost, producer, prices.read)
    np.add.at(cost, reader, -prices.read)
    leaves = lp.leaving_ns * prices.channel
    np.add.at(leaves, output, -prices.read)
    magnitude += (lp.leaving_ns * prices.channel).sum()
    value = np.where(lp.legal, cost, np.inf).min(axis=1).sum() + np.minimum(0.0, leaves).sum()
    value += (lp.rest * prices.memory).min() - prices.memory.sum()
    worth = float((prices.time * lp.streams).sum() + (prices.channel * lp.channels).sum())
    return max(0, math.ceil((value - ERROR * magnitude) / worth * (1 - ERROR))) if worth > 0 else 0
