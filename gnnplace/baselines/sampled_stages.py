"""Random stages and shares of a step of several micro-batches: starts for searches, beside random list schedules.

A row of places (`pipelines.rows`) is cut into stages of about equal work. Where copies stand together, each stage is on
one device, and a device has one to three stages: in turn, as interleaved pipelines have them (Narayanan et al., SC
2021), or there and back, as V schedules (Qi et al., 2024). Where copies are free, a stage may have several devices,
which share its micro-batches and its weights: one stage on all devices is sharded data parallelism. Everything is
drawn, nothing is compared: cuts, the order and the number of devices, shares.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.legal import legalised
from gnnplace.baselines.pipeline import device_orders
from gnnplace.baselines.pipelines.rows import passes_over, rows_to_cut
from gnnplace.choices import FREELY
from gnnplace.graph import NONE
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.units.units import expand, units

ALL = 0.7  # the share of pipelines on all devices
CHUNKS = {1: 0.4, 2: 0.45, 3: 0.15}  # stages of a device, and their shares
THERE_AND_BACK = 0.5  # the share of V shapes
ONE_STAGE = 0.5  # the share of placements of free copies whose devices share everything
UNEVEN = (0.0, 0.1, 0.3)  # deviations of the logarithm of a stage's part of the work

Stages = list[Int64[np.ndarray, "_"]]  # the devices of each stage


class _Row(NamedTuple):
    """A row to cut: the place of every unit, and the work of each place on each device."""

    place: Int64[np.ndarray, " units"]
    work_ns: Float[np.ndarray, "places devices"]


class _Constants(NamedTuple):
    """What all draws of a problem share."""

    rows: list[_Row]
    orders: list[Int64[np.ndarray, " accelerators"]]
    micro_batch: Int64[np.ndarray, " units"]  # -1: once a step


_constants: WeakKeyDictionary[Problem, _Constants] = WeakKeyDictionary()


def has_stages(problem: Problem) -> bool:
    """Whether the problem is a step of several micro-batches on one replica."""
    copies = problem.graph.copies
    return copies is not None and copies.micro_batches > 1 and copies.replicas == 1


def stage_placement(problem: Problem, generator: np.random.Generator, schedule: Schedule) -> Placement:
    """The placement of random stages and shares; the problem `has_stages`.

    Raises ValueError if a unit is allowed on no device.
    """
    constants, copies = _of(problem), copies_of(problem.graph)
    row = constants.rows[generator.integers(len(constants.rows))]
    order = constants.orders[generator.integers(len(constants.orders))]
    drawn = _shared(order, generator) if copies.placed in FREELY else _in_turn(order, generator)
    stages = drawn[: len(row.work_ns)]
    device = _placed(row, stages, constants.micro_batch, copies.micro_batches, generator)
    grouping = units(problem.graph, "ops")
    return Placement(expand(grouping, legalised(problem, grouping, device)), schedule)


def _of(problem: Problem) -> _Constants:
    if problem not in _constants:
        copies, passes = copies_of(problem.graph), passes_over(problem)
        # a unit stands where its first op does
        _, first = np.unique(units(problem.graph, "ops").unit, return_index=True)
        rows = []
        for place, _ in rows_to_cut(passes):
            work_ns = np.zeros((int(place.max()) + 1, problem.num_devices))
            np.add.at(work_ns, place, passes.one.time_ns)
            rows.append(_Row(place[copies.source[first]], work_ns))
        _constants[problem] = _Constants(rows, device_orders(problem), copies.micro_batch[first].astype(np.int64))
    return _constants[problem]


def _in_turn(order: Int64[np.ndarray, " accelerators"], generator: np.random.Generator) -> Stages:
    """Stages of one device each."""
    number = len(order) if generator.random() < ALL else int(generator.integers(1, len(order) + 1))
    chunks = int(generator.choice(list(CHUNKS), p=list(CHUNKS.values())))
    back = -1 if generator.random() < THERE_AND_BACK else 1
    ways = (order[:number], order[:number][::back])
    return [device[None] for chunk in range(chunks) for device in ways[chunk % 2]]


def _shared(order: Int64[np.ndarray, " accelerators"], generator: np.random.Generator) -> Stages:
    """Stages of neighbouring devices."""
    stages = 1 if generator.random() < ONE_STAGE else int(generator.integers(1, len(order) + 1))
    cuts = 1 + generator.choice(len(order) - 1, stages - 1, replace=False) if stages > 1 else np.zeros(0, np.int64)
    return np.split(order, np.sort(cuts))


def _placed(
    row: _Row,
    stages: Stages,
    micro_batch: Int64[np.ndarray, " units"],
    micro_batches: int,
    generator: np.random.Generator,
) -> Int64[np.ndarray, " units"]:
    """The device of every unit.

    Of a stage's units, those of a micro-batch stand on the device whose share it is in, others where their place is.
    """
    speed = 1 / np.maximum(row.work_ns.sum(axis=0), 1.0)
    size = row.work_ns[:, np.concatenate(stages)].mean(axis=1)
    middle = (np.cumsum(size) - size / 2) / max(1.0, size.sum())
    ends = _parts(np.array([speed[each].sum() for each in stages]), UNEVEN, generator)
    stage = np.searchsorted(ends[:-1], middle)
    starts = np.concatenate([[0.0], ends[:-1]])
    within = (middle - starts[stage]) / (ends - starts)[stage]
    device = np.empty(len(row.place), np.int64)
    for number, devices in enumerate(stages):
        here = np.flatnonzero(stage[row.place] == number)
        turn = (np.arange(micro_batches) + generator.random()) / micro_batches
        of_copy = devices[np.searchsorted(_parts(speed[devices], UNEVEN[:2], generator)[:-1], turn)]
        home = devices[(within[row.place[here]].clip(0, 1 - 1e-9) * len(devices)).astype(np.int64)]
        device[here] = np.where(micro_batch[here] == NONE, home, of_copy[micro_batch[here]])
    return device


def _parts(
    weight: Float[np.ndarray, " parts"], uneven: tuple[float, ...], generator: np.random.Generator
) -> Float[np.ndarray, " parts"]:
    """The ends of parts in proportion to disturbed weights; the last is 1."""
    disturbed = weight * np.exp(generator.normal(0.0, generator.choice(uneven), len(weight)))
    ends = np.cumsum(disturbed)
    return ends / ends[-1]
