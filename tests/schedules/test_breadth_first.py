"""The last two micro-batches of a device layer by layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.graphs import equal_gpus
from support.layered import layered

from gnnplace.baselines.data_parallel.ddp import ddp
from gnnplace.costs.roofline import problem
from gnnplace.placement import Placement
from gnnplace.schedules.breadth_first import breadth_first
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches


def placed(number: int, weight: int = 2**20):
    """Replicas of three layers on two cards, a bucket for each; a hop takes about as long as two ops."""
    proposal = ddp(problem(micro_batches(layered(3, weight=weight), number), equal_gpus(2, bandwidth=3 * 10**10)), simulate)
    (step,) = simulate(proposal.problem, [proposal.placement], timeline=True)
    return proposal, step


def again(proposal, step, part: float = 1.0):
    order = breadth_first(proposal.problem.graph, proposal.placement.device, step.timeline, part)
    (other,) = simulate(proposal.problem, [replace(proposal.placement, priority=order)], timeline=True)
    names = proposal.problem.graph.op_names
    return other, dict(zip(names, other.timeline.start_ns.tolist(), strict=True))


def test_layers_are_complete_one_after_another_and_sums_sooner():
    proposal, step = placed(4)
    assert proposal.problem.graph.copies.shares == (2, 2)
    other, start = again(proposal, step)
    assert start["f0@0"] < start["f0@1"] < start["f1@0"] < start["f2@1"] < start["b2@0"]  # one layer after another
    assert start["g2@1"] < start["b1@0"] and start["g1@1"] < start["b0@0"]
    assert other.step_time_ns < step.step_time_ns


def test_a_part_of_a_micro_batch_waits():
    proposal, step = placed(4)
    whole, part = (again(proposal, step, part)[1] for part in (1.0, 0.3))
    assert part["f2@0"] < part["f0@1"] < part["g0@0"] and part["b2@0"] < part["f0@1"]
    assert whole["f0@1"] < whole["f2@0"]


def test_of_more_micro_batches_only_the_last_two_wait():
    proposal, step = placed(6)
    start = again(proposal, step)[1]
    assert start["g0@0"] < start["f0@1"] < start["f0@2"] < start["f1@1"]


def test_without_two_micro_batches_there_is_no_such_order():
    proposal, step = placed(2, weight=100)
    assert breadth_first(proposal.problem.graph, proposal.placement.device, step.timeline) is None
    one = problem(layered(2), equal_gpus(1))
    placement = Placement(np.zeros(one.num_ops, dtype=np.int32))
    (step,) = simulate(one, [placement], timeline=True)
    assert breadth_first(one.graph, placement.device, step.timeline) is None
