"""Every form of a step of several micro-batches, and placements of each that come near what the step can take at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate_devices
from gnnplace.step_forms import reformed
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import allowed, units


def every_form(number: int, shared: tuple[str, ...] = (), layers: Sequence[str] = ()) -> Iterator[Parallelism]:
    """Forms of so many micro-batches: one replica, and all shares of several, with these layers at one home or not."""
    for copies in ("together", "free", "fetched", "anchored", "whole"):
        yield Parallelism(number, copies, shared)
    for shares in _shares(number):
        for copies in ("together", "free", "anchored", "whole"):
            for homes in {(), tuple(layers)}:
                yield Parallelism(number, copies, shared, len(shares), shares, homes)


def _shares(number: int) -> Iterator[tuple[int, ...]]:
    """The shares of two replicas and more that sum to a number."""
    for first in range(1, number):
        yield first, number - first
        yield from ((first, *rest) for rest in _shares(number - first))


def fastest(problem: Problem, form: Parallelism, tries: int, seed: int) -> int | None:
    """The fastest of some placements of a form of a problem in ns; None if the form is refused or none is feasible.

    Ops stand anywhere, all on one device, each micro-batch on one or each replica on one; some are then moved.
    """
    try:
        posed = reformed(problem, form.of(problem.graph.original))
        closure = units(posed.graph, "ops")
        legal = allowed(posed, closure)
    except ValueError:
        return None
    generator, copies = np.random.default_rng(seed), posed.graph.copies
    assert copies is not None
    batch, replica = (np.full(closure.num_units, -1) for _ in range(2))
    np.maximum.at(batch, closure.unit, copies.micro_batch)
    np.maximum.at(replica, closure.unit, copies.replica)
    rows = [_devices(generator, how % 4, batch, replica, legal) for how in range(tries)]
    return _fastest(posed, np.stack(rows)[:, closure.unit])


def _devices(generator: np.random.Generator, how: int, batch: np.ndarray, replica: np.ndarray, legal: np.ndarray) -> np.ndarray:
    count, devices = legal.shape
    anywhere = generator.integers(devices, size=count)
    choices = (anywhere, np.full(count, anywhere[0]), generator.integers(devices, size=batch.max() + 2)[batch],
               generator.integers(devices, size=replica.max() + 2)[replica])  # fmt: skip
    moved = generator.random(count) < generator.choice([0, 0.1, 0.3])
    device = np.where(moved, anywhere, choices[how])
    return np.where(legal[np.arange(count), device], device, legal.argmax(axis=1)).astype(np.int32)


def _fastest(posed: Problem, rows: np.ndarray) -> int | None:
    best: int | None = None
    for schedule in ("critical-path", "memory"):
        steps = simulate_devices(posed, rows, schedule)
        fits = steps.legal & steps.linked & (steps.peak_memory_bytes <= posed.cluster.memory_bytes).all(axis=1)
        if fits.any():
            least = int(steps.step_time_ns[fits].min())
            best = least if best is None else min(best, least)
    return best


def some_forms(random: Random, number: int, shared: tuple[str, ...], layers: Sequence[str], count: int) -> list[Parallelism]:
    """Some of the forms of a number of micro-batches, with some layers at one home."""
    homes = random.sample(layers, random.randint(0, len(layers)))
    forms = list(every_form(number, shared, homes))
    return random.sample(forms, min(count, len(forms)))
