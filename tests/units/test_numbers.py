"""Rows are numbered as `np.unique` numbers them; blocks cost by how many there are, whatever their numbers."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import equal_gpus

from gnnplace.baselines.expert import expert
from gnnplace.baselines.pipeline import pipeline
from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE, ComputationGraph, Op, Output
from gnnplace.policies.placing.unit_tables import unit_tables
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.units.numbers import block_numbers, row_numbers
from gnnplace.units.units import units

CLOSE, FAR = (0, 1, 2, 3), (0, 7, 2**31 - 2, 2**31 - 1)


def blocks(numbers: tuple[int, ...]) -> Problem:
    """A chain of ops, one in each block and one in none."""
    ops = [Op(f"o{i}", "k", (Output(10),), time_ns={"gpu": 1000}, block=number) for i, number in enumerate((*numbers, None))]
    return problem(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(len(numbers))]), equal_gpus(2))


def test_blocks_are_numbered_through_in_their_order():
    assert block_numbers(blocks((5, 2**31 - 1, 5, 3)).graph).tolist() == [1, 2, 1, 0, NONE]


@pytest.mark.parametrize("plan", [expert, pipeline])
def test_planners_see_the_order_of_blocks_alone(plan):
    close, far = (plan(blocks(numbers), simulate).device.tolist() for numbers in (CLOSE, FAR))
    assert close == far


def test_tables_of_units_are_as_large_as_the_graph():
    close, far = (blocks(numbers) for numbers in (CLOSE, FAR))
    found = [unit_tables(posed, units(posed.graph, "ops"), np.arange(5)).block.tolist() for posed in (close, far)]
    assert found == [[1, 2, 3, 4, 0]] * 2


def test_a_unit_is_in_the_block_of_most_of_its_work_the_lowest_on_a_tie():
    ops = [Op(f"o{i}", "k", time_ns={"gpu": time}, block=block, colocation=where)
           for i, (time, block, where) in enumerate([(5, 9, "a"), (5, 4, "a"), (3, 4, "b"), (2, 9, "b"), (2, 9, "b")])]  # fmt: skip
    posed = problem(ComputationGraph.from_ops("units", ops, []), equal_gpus(2))
    assert unit_tables(posed, units(posed.graph, "ops"), np.arange(2)).block.tolist() == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_places_among_the_distinct_rows(seed):
    generator = np.random.default_rng(seed)
    rows = generator.integers(-3, 4, size=(int(generator.integers(1, 60)), int(generator.integers(1, 5)))) * 10**12
    assert row_numbers(rows).tolist() == np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).tolist()


def test_no_rows_have_no_numbers():
    assert row_numbers(np.zeros((0, 3), dtype=np.int64)).tolist() == []
