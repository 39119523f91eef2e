"""Gaps of streams and channels: found and taken as by trying every time, and the oldest forgotten where there are too many."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnplace.baselines.scheduling.gaps import KEPT, NEVER, Gaps, earliest, free, take

REQUESTS = st.lists(st.tuples(st.integers(0, 150), st.integers(1, 4)), max_size=60)


def gaps_of(found: Gaps) -> list[tuple[int, int]]:
    number = found.number[1]
    return list(zip(found.begins[1, :number].tolist(), found.ends[1, :number].tolist(), strict=True))


@settings(deadline=None)
@given(REQUESTS)
def test_the_earliest_free_time_is_that_of_trying_every_time(requests):
    gaps, busy = free(2), set[int]()
    for ready, duration in requests:
        gap, start = earliest(gaps, 1, ready, duration)
        tried = ready
        while busy & set(range(tried, tried + duration)):
            tried += 1
        assert start == tried
        take(gaps, 1, gap, start, duration)
        busy |= set(range(start, start + duration))
        edges = [time for time in range(1, 500) if (time in busy) != (time - 1 in busy)]
        assert [time for pair in gaps_of(gaps) for time in pair if 0 < time < NEVER] == edges
    assert gaps_of(free(2)) == [(0, NEVER)] and gaps.number[0] == 1


def test_among_many_gaps_the_first_that_is_long_enough_is_found_from_any_time():
    gaps, busy, end = free(2), set[int](), 0
    for number in range(40):  # gaps of 1, 2 or 3, in turns of both lengths
        begin, duration = end + 1 + number % 3, 1 + number % 2
        take(gaps, 1, gaps.number[1] - 1, begin, duration)
        end = begin + duration
        busy |= set(range(begin, end))
    for ready in range(end + 2):
        for duration in (1, 2, 3, 4):
            tried = next(time for time in range(ready, end + 1 + ready) if not busy & set(range(time, time + duration)))
            assert earliest(gaps, 1, ready, duration)[1] == tried


def test_of_too_many_gaps_the_oldest_are_forgotten():
    gaps = free(2)
    for number in range(KEPT + 10):  # each a gap of 2 before it
        take(gaps, 1, gaps.number[1] - 1, 5 * number + 2, 3)
    assert gaps_of(gaps) == [*((5 * number, 5 * number + 2) for number in range(11, KEPT + 10)), (5 * (KEPT + 10), NEVER)]
    assert earliest(gaps, 1, 0, 2) == (0, 55) and earliest(gaps, 1, 5 * KEPT, 2)[1] == 5 * KEPT
    assert earliest(gaps, 1, 0, 3) == (KEPT - 1, 5 * (KEPT + 10))


def test_where_gaps_are_full_a_split_forgets_the_oldest_and_keeps_the_rest():
    full = free(2)
    for number in range(KEPT - 1):
        take(full, 1, full.number[1] - 1, 10 * number + 5, 5)
    for split in (0, 1, KEPT // 2, KEPT - 2):
        gaps = Gaps(*(array.copy() for array in full))
        before = gaps_of(gaps)
        take(gaps, 1, split, 10 * split + 2, 1)
        halves = [(10 * split, 10 * split + 2), (10 * split + 3, 10 * split + 5)]
        assert gaps_of(gaps) == [*before[:split], *halves, *before[split + 1 :]][1:]
        assert np.array_equal(gaps.number, full.number)
