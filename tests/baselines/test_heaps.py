"""Heaps in arrays behave as lists that are kept sorted."""

import numpy as np

from gnnplace.baselines.scheduling.heaps import heaps, is_less, pop, push


def test_as_sorted_lists():
    generator = np.random.default_rng(0)
    one, other = heaps(3, 200), heaps(3, 200)
    lists: dict[bool, list[list[tuple[int, int]]]] = {first: [[], [], []] for first in (False, True)}
    for _ in range(2000):
        row, first = int(generator.integers(3)), bool(generator.random() < 0.5)
        chosen, expected = one if first else other, lists[first][row]
        if expected and (len(expected) == 200 or generator.random() < 0.4):
            assert (chosen.key[row, 0], chosen.number[row, 0]) == expected[0]
            assert pop(chosen, row) == expected.pop(0)[1]
        else:
            pair = int(generator.integers(8)), int(generator.integers(30))
            push(chosen, row, *pair)
            expected[:] = sorted([*expected, pair])
        assert chosen.size[row] == len(expected)
        a, b = lists[True][row], lists[False][row]
        assert is_less(one, other, row) == (bool(a) and (not b or a[0] < b[0]))
