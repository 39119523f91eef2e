"""How steps are timed, stated once: warm-up, steps of several placements in turns, medians with bootstrap intervals, the machine's load.

*steady*: windows of steps until the medians of two in a row agree within 5 % (at most 20 windows), then windows in turns until each
placement has at least 30 steps, or 5 seconds of them. *paper* (Mirhoseini et al. 2018, section 3): ten steps, the median of the last five.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

Run = Callable[[int], list[int]]
ProtocolName = Literal["steady", "paper"]


@dataclass(frozen=True)
class Protocol:
    """The constants of a protocol; times in nanoseconds. `discarded` steps are run first, then windows until two agree."""

    name: ProtocolName = "steady"
    discarded: int = 0
    window: int = 5
    agree: float = 0.05
    most_windows: int = 20
    steps: int = 30
    enough_ns: int = 5 * 10**9


STEADY = Protocol()
PAPER = Protocol("paper", discarded=5, most_windows=0, steps=5)
RESAMPLES, INTERVAL = 2000, (2.5, 97.5)


class Estimate(NamedTuple):
    """A median and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


class Load(NamedTuple):
    """What the machine did meanwhile: the load average, the share of its cores' time in which they worked (for us too), and the share
    that its host took.
    """

    load_average: float
    busy: float
    stolen: float


def timed(runs: Sequence[Run], protocol: Protocol) -> list[list[int]]:
    """The step times of several placements, measured in turns after each has been warmed up."""
    for run in runs:
        warm_up(run, protocol)
    return in_turns(runs, protocol)


def in_turns(runs: Sequence[Run], protocol: Protocol) -> list[list[int]]:
    """The step times of several placements that are warm: a window of each in turn until all have enough."""
    times: list[list[int]] = [[] for _ in runs]
    while any(len(found) < protocol.steps and sum(found) < protocol.enough_ns for found in times):
        for run, found in zip(runs, times, strict=True):
            found += run(protocol.window)
    return times


def warm_up(run: Run, protocol: Protocol) -> int:
    """Runs steps until their time is steady; returns how many."""
    steps, before = protocol.discarded, 0.0
    if protocol.discarded:
        run(protocol.discarded)
    for _ in range(protocol.most_windows):
        now = float(np.median(run(protocol.window)))
        steps += protocol.window
        if abs(now - before) <= protocol.agree * now:
            break
        before = now
    return steps


def estimate(times: Sequence[int], seed: int = 0) -> Estimate:
    """The median of independent step times, with its percentile-bootstrap interval."""
    array = np.asarray(times, dtype=float)
    draws = np.random.default_rng(seed).integers(len(array), size=(RESAMPLES, len(array)))
    return Estimate(float(np.median(array)), *np.percentile(np.median(array[draws], axis=1), INTERVAL).tolist())


def ratio(times: Sequence[int], reference: Sequence[int], seed: int = 0) -> Estimate:
    """The median of one placement's step times over another's, resampled apart."""
    generator = np.random.default_rng(seed)
    resampled = []
    for values in (np.asarray(times, dtype=float), np.asarray(reference, dtype=float)):
        resampled.append(np.median(values[generator.integers(len(values), size=(RESAMPLES, len(values)))], axis=1))
    low, high = np.percentile(resampled[0] / resampled[1], INTERVAL).tolist()
    return Estimate(float(np.median(times) / np.median(reference)), low, high)


class LoadMeter:
    """Reads the machine's load from when it is made."""

    def __init__(self) -> None:
        self._first = _ticks()

    def load(self) -> Load:
        """The load since the meter was made."""
        spent = _ticks() - self._first
        total = max(1, int(spent.sum()))
        idle = int(spent[3] + spent[4])
        return Load(os.getloadavg()[0], 1 - idle / total, int(spent[7]) / total)


def _ticks() -> np.ndarray:
    """Clock ticks of all cores: user, nice, system, idle, iowait, irq, softirq, steal."""
    with open("/proc/stat") as file:
        return np.array([int(word) for word in file.readline().split()[1:9]])
