"""How steps are timed, stated once: warm-up, steps of several placements in turns, medians with bootstrap intervals, the machine's load.

*steady*: windows of steps until the medians of two in a row agree within 5 % (at most 20 windows), then windows in turns until each
placement has at least 30 steps, or 5 seconds of them. *paper* (Mirhoseini et al. 2018, section 3): ten steps, the median of the last five.

On a virtual machine a step of several cores lasts longer by whatever the host takes from any of them: of each placement the windows of
which it took least may be the ones that count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Literal, NamedTuple

import numpy as np

Run = Callable[[int], list[int]]
ProtocolName = Literal["steady", "paper"]


@dataclass(frozen=True)
class Protocol:
    """The constants of a protocol; times in nanoseconds. `discarded` steps are run first, then windows until two agree.

    So large a share of the windows of a placement count, above 0: those of which the host took least, and all that are equal to these.
    """

    name: ProtocolName = "steady"
    discarded: int = 0
    window: int = 5
    agree: float = 0.05
    most_windows: int = 20
    steps: int = 30
    enough_ns: int = 5 * 10**9
    counted: float = 1.0


STEADY = Protocol()
PAPER = Protocol("paper", discarded=5, most_windows=0, steps=5)
PROTOCOLS: Mapping[ProtocolName, Protocol] = {"steady": STEADY, "paper": PAPER}
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
    return in_turns(runs, protocol).times


def in_turns(runs: Sequence[Run], protocol: Protocol) -> Turns:
    """The step times of several placements that are warm: a window of each in turn until all have enough that count."""
    windows: list[list[list[int]]] = [[] for _ in runs]
    stolen: list[list[float]] = [[] for _ in runs]
    steps, enough_ns = protocol.steps / protocol.counted, protocol.enough_ns / protocol.counted
    while any(sum(map(len, found)) < steps and sum(map(sum, found)) < enough_ns for found in windows):
        for run, found, taken in zip(runs, windows, stolen, strict=True):
            meter = LoadMeter()
            found.append(run(protocol.window))
            taken.append(meter.load().stolen)
    counted = [_calmest(taken, protocol.counted) for taken in stolen]
    times = [list(chain.from_iterable(found[number] for number in numbers)) for found, numbers in zip(windows, counted, strict=True)]
    return Turns(times, counted, stolen)


def _calmest(stolen: Sequence[float], share: float) -> list[int]:
    """The numbers of the windows that count."""
    if not stolen:
        return []
    most = sorted(stolen)[ceil(share * len(stolen)) - 1]
    return [window for window, taken in enumerate(stolen) if taken <= most]


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


class Turns(NamedTuple):
    """Of each placement the step times of the windows that count, the numbers of these windows, from 0, and what share of the cores' time
    the host took in every window.
    """

    times: list[list[int]]
    counted: list[list[int]]
    stolen: list[list[float]]


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
