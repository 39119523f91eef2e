"""Blocks of every grain, by hand."""

import numpy as np
import pytest
from support.graphs import op

from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.units.blocks import grains, shares
from gnnplace.units.units import units


def cells() -> ComputationGraph:
    """Two layers over two time steps, a loss without either, and a group of two ops of different layers."""

    def cell(layer: int, step: int, colocation: str | None = None) -> Op:
        return Op(
            f"l{layer}t{step}",
            "Op",
            (Output(4),),
            block=layer,
            time_step=step,
            layer=f"layer{layer}",
            phase="forward",
            colocation=colocation,
        )

    ops = [cell(0, 0), cell(0, 1, "x"), cell(1, 0), cell(1, 1, "x"), op("loss")]
    return ComputationGraph.from_ops("cells", ops, [(0, 0, 1), (0, 0, 2), (1, 0, 3), (2, 0, 3), (3, 0, 4)])


def test_a_unit_belongs_where_its_first_op_does():
    graph = cells()
    closure = units(graph, "ops")
    found = {grain.name: [sorted(grain.block(b).tolist()) for b in range(grain.num_blocks)] for grain in grains(graph)}
    a, b, c, loss = (int(closure.unit[i]) for i in (0, 1, 2, 4))  # b has ops 1 and 3
    assert closure.unit[3] == b
    assert found["ops"] == [[unit] for unit in range(4)]
    assert found["block"] == found["layer"] == [sorted([a, b]), [c]]
    assert found["time step"] == [sorted([a, c]), [b]]
    assert sorted(found["block, time step"]) == sorted([[a], [b], [c]])
    assert all(loss not in block for block in found["layer, time step"])


def test_grains_of_a_single_block_are_left_out():
    graph = ComputationGraph.from_ops("bag", [op("a"), op("b")], [])
    assert {grain.name for grain in grains(graph)} <= {"ops", "weights", "coarse"}
    alone = ComputationGraph.from_ops("one", [op("a")], [])
    assert grains(alone) == ()


@pytest.mark.parametrize(("work", "expected"), [([1.0, 3.0, 0.0, 0.0], [0.25, 0.5, 0.125, 0.125]), ([0.0] * 4, [0.25] * 4)])
def test_blocks_are_drawn_half_by_work_and_half_evenly(work, expected):
    graph = cells()
    (grain,) = (each for each in grains(graph) if each.name == "ops")
    assert shares(grain, np.array(work)) == pytest.approx(expected)
