"""Sets of moves."""

from __future__ import annotations

import numpy as np
from support.graphs import chains

from gnnplace.moves.drawing import NO_GUIDE, draw, hash_of
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.moves.pool import distinct, from_there, some, together, unknown


def drawn(device, count=30, seed=0):
    return draw(neighbourhood(chains(3, 8, 3)), device, NO_GUIDE, np.random.default_rng(seed), count)


def afters(moves, device):
    return [moves.after(move, device).tolist() for move in range(len(moves.kind))]


HERE = np.arange(24, dtype=np.int32) % 3


def test_some_moves_and_two_sets_together_are_the_same_moves():
    first, second = drawn(HERE), drawn(HERE, 7, seed=1)
    assert afters(together(first, second), HERE) == afters(first, HERE) + afters(second, HERE)
    which = np.array([5, 2, 2, 29])
    assert afters(some(first, which), HERE) == [afters(first, HERE)[move] for move in which]
    assert some(first, which).change.tolist() == first.change[which].tolist()
    assert afters(some(first, np.zeros(0, np.int64)), HERE) == []


def test_moves_from_another_placement_put_their_units_on_the_same_devices():
    moves, there = drawn(HERE), np.zeros(24, np.int32)
    found = from_there(moves, there)
    expected = [moves.after(move, there) for move in range(30)]
    assert afters(found, there) == [device.tolist() for device in expected if device.any()]
    hashes = [hash_of(np.array(after, np.int32)) for after in afters(found, there)]
    assert (found.change ^ hash_of(there)).tolist() == hashes


def test_moves_that_change_the_same_are_chosen_last():
    first = from_there(drawn(HERE, 20), HERE)  # without moves that change nothing
    moves = together(some(first, np.array([0])), first)
    order = np.arange(len(moves.kind))
    assert distinct(moves, order, 2, 0.7)[0] == 0 and distinct(moves, order, 2, 0.7)[1] > 1
    assert distinct(some(moves, np.array([0, 1])), np.array([0, 1]), 2, 0.7).tolist() == [0, 1]  # there is no other
    assert sorted(distinct(moves, order, 100, 0.0)) == order.tolist()


def test_unknown_are_those_that_are_new_for_the_first_time():
    assert unknown([4, 5, 4, 6], {6}).tolist() == [True, True, False, False]
