"""HiGHS without `scipy.optimize`: the same numbers as by SciPy's own interface, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from gnnplace.bounds import highs
from gnnplace.bounds.highs import LinearProgram
from gnnplace.bounds.load import best_prices, loads
from gnnplace.bounds.relaxed import relaxed
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline

core = highs._core()


def _program(seed: int) -> LinearProgram:
    """A random program of the kind that `load` solves, some zeros among its rows."""
    random = np.random.default_rng(seed)
    classes, rows = int(random.integers(1, 6)), int(random.integers(1, 40))
    times = random.random((rows, classes)) * random.integers(0, 2, (rows, classes))
    table = np.concatenate([-times, 1 - 2 * random.random((rows, classes)), np.ones((rows, 1))], axis=1)
    whole = np.append(random.integers(1, 5, classes), np.zeros(classes + 1)).astype(np.float64)
    low, high = np.append(np.zeros(2 * classes), -np.inf), np.repeat([np.inf, 1.0, np.inf], [classes, classes, 1])
    return LinearProgram(np.append(np.zeros(2 * classes), -1.0), table, whole, low, high)


@pytest.mark.skipif(core is None, reason="this SciPy has HiGHS in another place")
@pytest.mark.parametrize("seed", range(40))
def test_both_ways_to_the_solver_give_the_same_bits(seed):
    program = _program(seed)
    ours, theirs = highs._by_core(program, core), highs.by_linprog(program)
    assert ours is not None and theirs is not None
    assert ours.x.tobytes() == theirs.x.tobytes() and ours.value == theirs.value


@pytest.mark.skipif(core is None, reason="this SciPy has HiGHS in another place")
def test_neither_finds_an_optimum_where_there_is_none():
    program = _program(0)
    unbounded = program._replace(cost=-program.cost, high=np.full(len(program.cost), np.inf))
    infeasible = program._replace(high=np.zeros(len(program.cost)))
    for bad in (unbounded, infeasible):
        assert highs._by_core(bad, core) is None and highs.by_linprog(bad) is None


def test_a_scipy_that_has_no_such_module_is_asked_by_its_own_interface(monkeypatch):
    needs = loads(relaxed(roofline.problem(manifest.graph("dlrm"), clusters.cluster("k40-2")), 64))
    expected = best_prices(needs)
    monkeypatch.setattr(highs, "SOLVER", "scipy.optimize._elsewhere._core")
    assert highs._core() is None
    found = best_prices(needs)
    assert all(ours.tobytes() == theirs.tobytes() for ours, theirs in zip(expected, found, strict=True))
