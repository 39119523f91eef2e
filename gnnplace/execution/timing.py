"""Timing protocols: warm-up, placements timed in turns, medians with bootstrap intervals, the load of the machine.

*steady*: windows of steps until two successive medians agree within 5 % (at most 20 windows), then windows in turns
until each placement has 30 steps or 5 seconds. *paper* (Mirhoseini et al. 2018, section 3): ten steps, the median of
the last five.

On a virtual machine the hypervisor steals CPU time, which lengthens a step on several cores. A protocol may therefore
keep only the windows with the least stolen time (`counted`).
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
    """The constants of a protocol; times in ns. First `discarded` steps run, then windows until two medians agree.

    Keep the fraction `counted` of windows with the least stolen CPU time; ties are kept.
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
    """The machine's load average, the busy share of its cores' time (this process included), and the share that the
    hypervisor stole.
    """

    load_average: float
    busy: float
    stolen: float


def timed(runs: Sequence[Run], protocol: Protocol) -> list[list[int]]:
    """The step times of several placements in ns, timed in turns after the warm-up of each."""
    for run in runs:
        warm_up(run, protocol)
    return in_turns(runs, protocol).times


def in_turns(runs: Sequence[Run], protocol: Protocol) -> TimedTurns:
    """The step times of several warm placements: one window of each in turn, until all have enough steps."""
    windows: list[list[list[int]]] = [[] for _ in runs]
    stolen: list[list[float]] = [[] for _ in runs]
    steps, enough_ns = protocol.steps / protocol.counted, protocol.enough_ns / protocol.counted
    while any(
        sum(map(len, window_times)) < steps and sum(map(sum, window_times)) < enough_ns for window_times in windows
    ):
        for run, window_times, fractions in zip(runs, windows, stolen, strict=True):
            meter = LoadMeter()
            window_times.append(run(protocol.window))
            fractions.append(meter.load().stolen)
    counted = [_calmest(fractions, protocol.counted) for fractions in stolen]
    times = [
        list(chain.from_iterable(window_times[number] for number in numbers))
        for window_times, numbers in zip(windows, counted, strict=True)
    ]
    return TimedTurns(times, counted, stolen)


def _calmest(stolen: Sequence[float], share: float) -> list[int]:
    """The indices of the windows with the least stolen time: the fraction `share` of them, and ties."""
    if not stolen:
        return []
    most = sorted(stolen)[ceil(share * len(stolen)) - 1]
    return [window for window, fraction in enumerate(stolen) if fraction <= most]


def warm_up(run: Run, protocol: Protocol) -> int:
    """Runs steps until their time is steady. Returns the number of steps."""
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
    """The median of independent step times (ns) with its 95 % percentile-bootstrap interval."""
    array = np.asarray(times, dtype=float)
    draws = np.random.default_rng(seed).integers(len(array), size=(RESAMPLES, len(array)))
    return Estimate(float(np.median(array)), *np.percentile(np.median(array[draws], axis=1), INTERVAL).tolist())


def ratio(times: Sequence[int], reference: Sequence[int], seed: int = 0) -> Estimate:
    """The ratio of two placements' median step times with its 95 % interval, resampled independently."""
    generator = np.random.default_rng(seed)
    resampled = []
    for values in (np.asarray(times, dtype=float), np.asarray(reference, dtype=float)):
        resampled.append(np.median(values[generator.integers(len(values), size=(RESAMPLES, len(values)))], axis=1))
    low, high = np.percentile(resampled[0] / resampled[1], INTERVAL).tolist()
    return Estimate(float(np.median(times) / np.median(reference)), low, high)


class TimedTurns(NamedTuple):
    """For each placement the step times (ns) of kept windows, their indices, and the stolen share of every window."""

    times: list[list[int]]
    counted: list[list[int]]
    stolen: list[list[float]]


class LoadMeter:
    """Measures the machine's load since its creation."""

    def __init__(self) -> None:
        self._first = _ticks()

    def load(self) -> Load:
        """The load since the creation."""
        spent = _ticks() - self._first
        total = max(1, int(spent.sum()))
        idle = int(spent[3] + spent[4])
        return Load(os.getloadavg()[0], 1 - idle / total, int(spent[7]) / total)


def _ticks() -> np.ndarray:
    """Clock ticks of all cores: user, nice, system, idle, iowait, irq, softirq, steal."""
    with open("/proc/stat") as file:
        return np.array([int(word) for word in file.readline().split()[1:9]])
