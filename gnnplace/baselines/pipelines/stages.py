"""Stages of a step of several micro-batches: cuts of a row of places into runs, one for each stage of a schedule.

People cut equal numbers of blocks, with the embedding in the first and the loss in the last stage. Other cuts minimise
what a step is estimated to take, and there are two estimates. That of `stage_times` follows the schedule pass by pass;
a search shifts cuts from equal work, for each number and order of devices. The bottleneck of work and transfers
(PipeDream, Narayanan et al., SOSP 2019, section 3.1, without replication) knows nothing of warm-up and of skips, but a
dynamic programme minimises it exactly, at little cost on small graphs. In both, a device holds its weights and the
activations that the schedule keeps there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.pipeline import LayerSums, StageLoads, cut_loads, device_orders, rows, split, sums_of_row
from gnnplace.baselines.pipelines.actions import Pipeline, Rule, Table, alive, devices_of_stages
from gnnplace.baselines.pipelines.rows import RowToCut, passes_over, rows_to_cut
from gnnplace.baselines.pipelines.stage_times import OVERFLOW, Bounds, RowTimes, StageEstimate, link_table, row_times
from gnnplace.problems import Problem
from gnnplace.units.units import Units, kept_bytes, persistent_bytes

# shares of a memory that stages may fill; what is received waits there, too, and where nothing fits, stages overflow
ROOMS = (np.inf, 1.0, 0.9)
ROOMS_BALANCED = (np.inf, 1.0, 0.8)  # for weights and saved activations alone
BEST = 3  # numbers and orders of devices that a search goes on with
RESTARTS = 10  # of a search, each from the best cuts after random shifts
WORK = 2 * 10**9  # of all searches of a row (`StageEstimate.work`), at most a few seconds
FEW_OPS = 100_000  # for which balanced cuts are cheap


class Cut(NamedTuple):
    """The stage of every op, the device of every stage, and the actions of the schedule on these devices."""

    stage: Int64[np.ndarray, " ops"]
    devices: Int64[np.ndarray, " stages"]
    table: Table


class WeighedRow(NamedTuple):
    """A row of one micro-batch as sums of the step's work and transfers; weights, and what a forward pass saves."""

    place: Int64[np.ndarray, " ops_of_a_micro_batch"]
    sums: LayerSums
    weights: Int64[np.ndarray, " places"]
    saved: Float[np.ndarray, " places"]


def cuts(problem: Problem, rule: Rule) -> list[Cut]:
    """The cuts for a schedule, each placement of stages once: equal and searched ones, then balanced ones."""
    pipelines = pipelines_of(problem, rule)
    distinct = {each.devices[each.stage].tobytes(): each for each in searched_cuts(problem, pipelines)}
    for each in balanced_cuts(problem, pipelines):
        distinct.setdefault(each.devices[each.stage].tobytes(), each)
    return list(distinct.values())


def pipelines_of(problem: Problem, rule: Rule) -> list[Pipeline]:
    """A schedule on each number of devices, from all to one, in each order of devices."""
    orders, micro_batches = device_orders(problem), copies_of(problem.graph).micro_batches
    tables = [rule(number, micro_batches) for number in range(len(orders[0]), 0, -1)]
    distinct = {len(table): table for table in tables}.values()
    return [Pipeline(order[devices_of_stages(table)], table) for table in distinct for order in orders]


def searched_cuts(problem: Problem, pipelines: list[Pipeline]) -> Iterator[Cut]:
    """Equal numbers of blocks on all devices, and the least estimated step found for each row and memory."""
    links, memory = link_table(passes_over(problem).one), problem.cluster.memory_bytes.astype(np.float64)
    timed, _ = _rows_of(problem)
    for row, times in timed:
        judged = [StageEstimate(each, times, links, memory) for each in _fitting(pipelines, row.length)]
        alike = {(len(each.pipeline.table), each.step_ns(even(each))): each for each in judged[::-1]}  # in other orders
        judged = list(alike.values())[::-1]
        for pipeline in _widest([each.pipeline for each in judged]) if row.named else ():
            yield _cut(problem, row.place, equal(row.length, pipeline), pipeline)
        for bounds, each in _best(judged):
            yield _cut(problem, row.place, bounds, each.pipeline)


def balanced_cuts(problem: Problem, pipelines: list[Pipeline]) -> Iterator[Cut]:
    """Cuts of each row of names on as many devices as it has places for: equal, and of the least bottleneck."""
    _, weighed = _rows_of(problem)
    for row in weighed:
        length = len(row.saved)
        for pipeline in _widest(_fitting(pipelines, length)):
            yield _cut(problem, row.place, equal(length, pipeline), pipeline)
            for share in ROOMS_BALANCED:
                splits = split(_stage_loads(problem, row, pipeline, share))
                if splits and len(splits[-1]) == len(pipeline.devices) + 1:
                    yield _cut(problem, row.place, splits[-1], pipeline)


_rows: WeakKeyDictionary[Problem, tuple[list[tuple[RowToCut, RowTimes]], list[WeighedRow]]] = WeakKeyDictionary()


def _rows_of(problem: Problem) -> tuple[list[tuple[RowToCut, RowTimes]], list[WeighedRow]]:
    """The rows to search and those to balance, with their sums: the same for all schedules, so built once."""
    if problem not in _rows:
        passes = passes_over(problem)
        timed = [(row, row_times(passes, row.place)) for row in rows_to_cut(passes)]
        named = rows(passes.one) if problem.num_ops <= FEW_OPS else ()
        _rows[problem] = timed, [_weighed(problem, place) for place in named]
    return _rows[problem]


def _weighed(problem: Problem, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> WeighedRow:
    copies = copies_of(problem.graph)
    everywhere = place[copies.source]
    blocks = Units("places", everywhere.astype(np.int32), int(place.max()) + 1)
    weights = persistent_bytes(problem.graph, blocks)
    saved = (kept_bytes(problem.graph, blocks) - weights) / copies.micro_batches
    return WeighedRow(place, sums_of_row(problem, everywhere), weights, saved)


def _fitting(pipelines: list[Pipeline], length: int) -> list[Pipeline]:
    """Those with a place for each stage."""
    return [each for each in pipelines if len(each.devices) <= length]


def _widest(pipelines: list[Pipeline]) -> list[Pipeline]:
    """Those on as many devices as the first."""
    return [each for each in pipelines if len(each.table) == len(pipelines[0].table)]


def _cut(
    problem: Problem, place: Int64[np.ndarray, " ops_of_a_micro_batch"], bounds: Bounds, pipeline: Pipeline
) -> Cut:
    """The cut whose stage s has the places `bounds[s]` to before `bounds[s + 1]`."""
    stage = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return Cut(stage[place][copies_of(problem.graph).source], *pipeline)


def equal(length: int, pipeline: Pipeline) -> Bounds:
    """The bounds of stages with equal numbers of places."""
    stages = len(pipeline.devices)
    return np.arange(stages + 1) * length // stages


def even(judge: StageEstimate) -> Bounds:
    """The bounds of stages of parts of the work by the speed of their devices."""
    work_ns = judge.times.work_ns.sum(axis=0)[:, judge.pipeline.devices]
    speed, done = np.cumsum(1 / work_ns[-1]), work_ns.mean(axis=1)
    return _parted(np.searchsorted(done / done[-1], [0.0, *(speed / speed[-1])]), judge.length)


def _parted(bounds: Bounds, length: int) -> Bounds:
    """The bounds in order, from 0 to `length`, such that no stage is empty."""
    stages = np.arange(len(bounds))
    inside = np.clip(np.sort(bounds), 0, length)
    inside[0], inside[-1] = 0, length
    return np.minimum(np.maximum.accumulate(inside - stages) + stages, length - stages[::-1])


def _best(judged: list[StageEstimate]) -> Iterator[tuple[Bounds, StageEstimate]]:
    """The bounds of the least estimate for the best numbers and orders of devices, in each share of the memories."""
    fits: list[tuple[Bounds, StageEstimate]] = []
    searches = len(ROOMS) * (len(judged) + BEST * RESTARTS)
    most = {each: max(1, WORK // (searches * each.work)) for each in judged}
    for share in ROOMS:
        if fits and all(each.step_ns(bounds, share) < OVERFLOW for bounds, each in fits):
            continue  # what is best with more memory fits
        ends = sorted(((*each.climbed(even(each), share, most[each]), each) for each in judged), key=lambda end: end[1])
        fits = [(_restarted(each, bounds, least, share, most[each]), each) for bounds, least, each in ends[:BEST]]
        yield from fits


def _restarted(judge: StageEstimate, best: Bounds, least: float, share: float, most: int) -> Bounds:
    """The best bounds of searches from random shifts of half of the best cuts before."""
    generator, far = np.random.default_rng(0), judge.length / len(best)
    for _ in range(RESTARTS):
        shift = np.rint(generator.normal(0.0, far, len(best))) * generator.integers(0, 2, len(best))
        bounds, time = judge.climbed(_parted(best + shift.astype(np.int64), judge.length), share, most)
        if time < least:
            best, least = bounds, time
    return best


def _stage_loads(problem: Problem, row: WeighedRow, pipeline: Pipeline, share: float) -> StageLoads:
    """The loads of stages, which fill a share of the memory at most. Chunks of a device have equal parts of it."""
    devices = pipeline.devices
    held = np.outer(np.ones(len(devices)), row.weights) + np.outer(alive(pipeline.table), row.saved)
    held = np.concatenate([np.zeros((len(devices), 1)), np.cumsum(held, axis=1)], axis=1)
    room = share * problem.cluster.memory_bytes[devices] / np.bincount(devices)[devices]
    return StageLoads(row.sums.work_ns[:, devices].T.copy(), held, room, cut_loads(problem, row.sums, devices))
