"""Cuts into stages: as people cut, as a search and a dynamic programme do, and no planner slower than one of them."""

from __future__ import annotations

import numpy as np
import pytest
from support.equal_stages import equal_stages
from support.graphs import equal_gpus
from support.random_steps import random_step

import gnnplace as gp
from gnnplace.baselines.layers import block_of_ops
from gnnplace.baselines.pipelines.actions import Rule
from gnnplace.baselines.pipelines.interleaved import interleaved_1f1b
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.orders import passes, placed
from gnnplace.baselines.pipelines.pipelined import pipelined
from gnnplace.baselines.pipelines.stages import balanced_cuts, cuts, pipelines_of, searched_cuts
from gnnplace.baselines.pipelines.zb_v import zb_v
from gnnplace.costs import roofline
from gnnplace.graph import NONE
from gnnplace.portfolio import forms
from gnnplace.portfolio.planners import PIPELINES
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.parallelism import Parallelism


def test_equal_layers_are_cut_into_equal_stages():
    problem = equal_stages(4, 4, 4)
    for cut in balanced_cuts(problem, pipelines_of(problem, one_f_one_b)):
        assert len(cut.table) == len(cut.devices) == 4 and len(np.unique(np.bincount(cut.stage))) <= 2


def test_a_planner_proposes_the_cuts_of_both_and_is_never_slower():
    problem = gp.problem("transformer-xl-2", cluster="k40-4", micro_batches=4)
    pipelines = pipelines_of(problem, one_f_one_b)
    of_both = [*searched_cuts(problem, pipelines), *balanced_cuts(problem, pipelines)]
    devices = [cut.devices[cut.stage].tolist() for cut in cuts(problem, one_f_one_b)]
    assert devices == [list(each) for each in dict.fromkeys(tuple(cut.devices[cut.stage].tolist()) for cut in of_both)]
    best, *others = simulate(problem, [pipelined(problem, simulate, rule=one_f_one_b), *(placed(problem, *cut) for cut in of_both)])
    assert best.step_time_ns <= min(other.step_time_ns for other in others)


def test_people_cut_equal_numbers_of_blocks_and_fast_devices_have_more_work():
    problem = gp.problem("transformer-xl-8", cluster="mixed-4", micro_batches=4)
    block = block_of_ops(problem.graph.copies.original)[problem.graph.copies.source]
    equal, *_, best = searched_cuts(problem, pipelines_of(problem, one_f_one_b))
    assert [np.unique(block[equal.stage == stage]).tolist() for stage in range(4)] == np.arange(8).reshape(4, 2).tolist()
    ops = np.bincount(best.devices[best.stage], minlength=problem.num_devices)[problem.cluster.accelerators]
    assert ops[2:].min() > 2 * ops[:2].max()  # two slow cards, two fast ones


@pytest.mark.parametrize(("network", "rule"), [("gpt2", interleaved_1f1b), ("bert-base", zb_v), ("unet", one_f_one_b)])
def test_a_stage_reads_from_earlier_ones(network: str, rule: Rule):
    problem = gp.problem(network, cluster="k40-4", micro_batches=8)
    graph, copies = problem.graph, problem.graph.copies
    forward = (passes(copies) == 0) & (copies.micro_batch != NONE) & (np.diff(graph.in_ptr) > 0)
    inside = forward[graph.edge_src] & forward[graph.edge_dst]
    for cut in searched_cuts(problem, pipelines_of(problem, rule)):
        assert (cut.stage[graph.edge_src[inside]] <= cut.stage[graph.edge_dst[inside]]).all()


@pytest.mark.parametrize("seed", [8, 42, 45])
def test_a_row_whose_first_places_have_no_op_is_cut(seed):
    """Layers with the first numbers stand with others in these steps."""
    posed = roofline.problem(Parallelism(2).of(random_step(seed)), equal_gpus(3))
    assert [rule.planner for rule in forms.by_pipelines(posed, simulate)] == list(PIPELINES)
