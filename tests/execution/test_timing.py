"""The timing protocol on steps whose times are made up: when warm-up ends, how turns are taken, what medians and intervals say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from time import monotonic

import numpy as np
import pytest

from gnnplace.execution import timing
from gnnplace.execution.timing import PAPER, STEADY, LoadMeter, Protocol, estimate, in_turns, ratio, timed, warm_up

MS = 10**6


class Steps:
    """A placement whose k-th step takes the k-th of `times_ns` (the last again and again); `calls` of all go to one list."""

    def __init__(self, *times_ns: int, name: str = "a", calls: list[tuple[str, int]] | None = None) -> None:
        self.done, self._times, self._name = 0, times_ns, name
        self.calls = [] if calls is None else calls

    def __call__(self, steps: int) -> list[int]:
        self.calls.append((self._name, steps))
        times = [self._times[min(self.done + k, len(self._times) - 1)] for k in range(steps)]
        self.done += steps
        return times


@pytest.mark.parametrize(
    ("windows_ms", "steps"),
    [
        ((10, 10), 10),  # the first two windows agree
        ((30, 20, 15, 12, 11.9), 25),  # 12 and 11.9 are the first within 5 %
        ((10, 10.6, 10), 20),  # 5.7 % are not
        ((10, 10.5), 10),  # 4.8 % of the later one are
    ],
)
def test_warm_up_ends_when_two_windows_agree(windows_ms: Sequence[float], steps: int) -> None:
    run = Steps(*(int(ms * MS) for ms in windows_ms for _ in range(STEADY.window)))
    assert warm_up(run, STEADY) == steps == run.done


def test_a_window_is_its_median() -> None:
    run = Steps(*[10 * MS] * 7, 900 * MS, 900 * MS, 10 * MS)
    assert warm_up(run, STEADY) == 10


def test_warm_up_that_is_never_steady_has_a_limit() -> None:
    run = Steps(*(MS * 2**k for k in range(40) for _ in range(STEADY.window)))
    assert warm_up(run, STEADY) == STEADY.most_windows * STEADY.window == run.done == 100


def test_placements_take_turns_after_their_warm_up() -> None:
    calls: list[tuple[str, int]] = []
    times = timed([Steps(MS, name="a", calls=calls), Steps(2 * MS, name="b", calls=calls)], STEADY)
    assert calls == [("a", 5), ("a", 5), ("b", 5), ("b", 5), *[("a", 5), ("b", 5)] * 6]
    assert times == [[MS] * 30, [2 * MS] * 30]


def test_five_seconds_are_enough_where_thirty_steps_take_longer() -> None:
    assert [len(found) for found in timed([Steps(400 * MS)], STEADY)] == [15]  # 2 s a window: 6 s
    assert [len(found) for found in timed([Steps(1000 * MS)], STEADY)] == [5]
    assert [len(found) for found in timed([Steps(1000 * MS), Steps(MS)], STEADY)] == [30, 30]  # in turns to the end


def _host_takes(monkeypatch: pytest.MonkeyPatch, *ticks: int) -> None:
    """So many ticks of a thousand in each window from now on, the last again and again."""
    taken = itertools.chain(ticks, itertools.repeat(ticks[-1]))
    readings = itertools.chain.from_iterable(([0] * 8, [1000 - stolen, *[0] * 6, stolen]) for stolen in taken)
    monkeypatch.setattr(timing, "_ticks", lambda: np.array(next(readings)))


def test_the_windows_count_of_which_the_host_took_least(monkeypatch: pytest.MonkeyPatch) -> None:
    _host_takes(monkeypatch, 0, 500, 300, 20, 20, 10)
    run = Steps(*(k * MS for k in range(1, 13)))
    found = in_turns([run], Protocol(window=2, steps=6, counted=0.5))
    assert run.done == 12
    assert found.counted == [[0, 3, 4, 5]]  # the third calmest and another one like it
    assert found.times == [[k * MS for k in (1, 2, 7, 8, 9, 10, 11, 12)]]
    assert found.stolen == [pytest.approx([0, 0.5, 0.3, 0.02, 0.02, 0.01])]


def test_each_placement_has_calm_windows_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _host_takes(monkeypatch, 0, 500, 500, 0)
    found = in_turns([Steps(MS, 2 * MS), Steps(3 * MS, 4 * MS)], Protocol(window=1, steps=1, counted=0.5))
    assert found.times == [[MS], [4 * MS]] and found.counted == [[0], [1]]


def test_where_the_host_takes_nothing_all_windows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    _host_takes(monkeypatch, 0)
    assert [len(found) for found in in_turns([Steps(MS)], Protocol(window=2, steps=6, counted=0.5)).times] == [12]
    assert in_turns([], STEADY) == ([], [], [])


def test_half_of_the_windows_need_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _host_takes(monkeypatch, 0)
    run = Steps(400 * MS)
    in_turns([run], Protocol(counted=0.5))
    assert run.done == 25  # 10 s, of which 5 are to count


def test_the_papers_protocol_is_ten_steps_and_the_last_five() -> None:
    run = Steps(*(k * MS for k in range(1, 20)))
    assert timed([run], PAPER) == [[6 * MS, 7 * MS, 8 * MS, 9 * MS, 10 * MS]]
    assert run.done == 10
    assert estimate(timed([Steps(*(k * MS for k in range(1, 20)))], PAPER)[0]).median == 8 * MS


def test_a_protocol_is_its_constants() -> None:
    run = Steps(*[9 * MS] * 3, *[MS] * 9)
    assert timed([run], Protocol(discarded=3, window=2, most_windows=2, steps=4)) == [[MS] * 4]
    assert run.calls == [("a", 3), ("a", 2), ("a", 2), ("a", 2), ("a", 2)]


def _coverage(size: int, trials: int) -> float:
    generator, hits = np.random.default_rng(7), 0
    for trial in range(trials):
        times = np.rint(MS * (10 + generator.lognormal(0, 1, size))).astype(int).tolist()
        found = estimate(times, seed=trial)
        hits += found.low <= 11 * MS <= found.high  # the median of a standard log-normal is 1
    return hits / trials


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    assert 0.91 <= _coverage(size=30, trials=400) <= 0.98  # two standard errors of 400 trials are 0.022


def test_the_interval_gets_narrower_and_does_not_depend_on_chance() -> None:
    times = np.rint(MS * np.random.default_rng(0).lognormal(2, 0.3, 400)).astype(int).tolist()
    few, many = estimate(times[:30]), estimate(times)
    assert few.low < few.median < few.high and many.high - many.low < (few.high - few.low) / 2
    assert estimate(times) == many == estimate(times, seed=0)
    assert estimate([5 * MS] * 30) == (5 * MS, 5 * MS, 5 * MS)


def test_a_ratio_is_that_of_the_medians() -> None:
    generator = np.random.default_rng(1)
    one, other = (np.rint(MS * scale * generator.normal(1, 0.02, 60)).astype(int).tolist() for scale in (10, 20))
    found = ratio(one, other)
    assert found.median == pytest.approx(np.median(one) / np.median(other))
    assert found.low < 0.5 < found.high and found.high - found.low < 0.03
    turned = ratio(other, one)
    assert turned.median == pytest.approx(1 / found.median)
    assert ratio(one, one).low < 1 < ratio(one, one).high


def test_load_is_what_was_not_idle_and_what_was_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([[1000, 0, 0, 5000, 100, 0, 0, 10], [1200, 10, 40, 5500, 200, 0, 50, 110]])
    monkeypatch.setattr(timing, "_ticks", lambda: np.array(next(readings)))
    load = LoadMeter().load()
    assert load.busy == pytest.approx(400 / 1000) and load.stolen == pytest.approx(100 / 1000)


def test_the_meter_sees_this_machine_work() -> None:
    meter, end = LoadMeter(), monotonic() + 0.5
    while monotonic() < end:
        pass
    load = meter.load()
    assert 0 < load.busy <= 1 and 0 <= load.stolen <= 1 and load.load_average >= 0
