"""Lifting: copies keep their places, as many are in flight, and a micro-batch takes no longer in a larger step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.equal_stages import equal_stages
from support.graphs import equal_gpus
from support.layered import layered

from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.portfolio import forms
from gnnplace.portfolio.lifted import grown, lifted
from gnnplace.portfolio.planners import PIPELINES
from gnnplace.problems import Problem
from gnnplace.schedules.device_use import in_flight
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.replicas import replicas

RULES = ("one-card", "ddp", "fsdp")


def posed(number: int = 4, layers: int = 3, cards: int = 2, form: Parallelism | None = None, **columns) -> Problem:
    return problem((form or Parallelism(number)).of(layered(layers, **columns)), equal_gpus(cards))


def stepped(of: Problem, placement: Placement):
    (result,) = simulate(of, [placement], timeline=True)
    assert result.infeasible is None
    return result


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("times", [2, 3])
def test_a_micro_batch_takes_no_longer_in_a_larger_step(rule: str, times: int):
    given = forms.by_rule(rule, posed(), simulate)
    larger = grown(given.form, times)
    assert stepped(larger, lifted(given.placement, given.form, larger)).step_time_ns <= times * given.step_time_ns


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_goes_on_in_its_steady_state(name: str):
    small = equal_stages(4, 8 if name in ("interleaved-1f1b", "zb-v", "v-half") else 4, 8)
    given, larger = PIPELINES[name](small, simulate), grown(small, 2)
    before, after = stepped(small, given), stepped(larger, lifted(given, small, larger))
    assert after.step_time_ns < 2 * before.step_time_ns


def test_copies_stand_where_they_stood_in_each_block():
    form = posed(4, form=Parallelism(4, "free"))
    given = Placement(np.random.default_rng(0).integers(0, 2, form.num_ops).astype(np.int32))
    groups = form.graph.colocation.index
    device = given.device.copy()
    for group in range(len(form.graph.colocation.values)):
        device[groups == group] = device[np.flatnonzero(groups == group)[0]]
    larger = grown(form, 2)
    placed, at = lifted(replace(given, device=device), form, larger), dict(zip(form.graph.op_names, device, strict=True))
    copies, names = larger.graph.copies, larger.graph.op_names
    for op in np.flatnonzero((copies.micro_batch != NONE) & ~copies.added).tolist():
        name, number = names[op].rsplit("@", 1)
        assert placed.device[op] == at[f"{name}@{int(number) % 4}"]
    for op in np.flatnonzero(copies.micro_batch == NONE).tolist():
        assert placed.device[op] == at[names[op]]


def test_replicas_keep_their_cards_with_unequal_shares():
    small = posed(form=Parallelism(4, "whole", shares=(1, 3)))
    larger = grown(small, 2)
    assert larger.graph.copies.shares == (2, 6)
    placed = lifted(Placement(small.graph.copies.replica.astype(np.int32)), small, larger)
    assert (placed.device == larger.graph.copies.replica).all()


def test_layers_at_one_home_stay_there_in_whatever_order_they_were_named():
    small = problem(replicas(layered(3), [2, 2], "whole", (), ("layer.2", "layer.0")), equal_gpus(2))
    home = np.array([op.startswith(("w0", "u0", "g0/sum")) for op in small.graph.op_names])
    device = np.where(home, 1, np.maximum(0, small.graph.copies.replica)).astype(np.int32)
    larger = grown(small, 2)
    placed = lifted(Placement(device), small, larger)
    assert all(placed.device[larger.graph.op_names.index(name)] == 1 for name in ("w0", "u0"))
    stepped(larger, placed)


@pytest.mark.parametrize("copies", ["whole", "free"])
@pytest.mark.parametrize(("shares", "of_family"), [((2, 2), (3, 1)), ((1, 3), (0, 4)), ((1, 1, 2), (0, 1, 3))])
def test_families_keep_their_cards_in_every_block(copies: str, shares: tuple[int, ...], of_family: tuple[int, ...]):
    """Of shares 2, 2 and those 3, 1 of a family, micro-batch 3 moves; of 4, 4 and 6, 2 the last two do, not each second one."""
    family = (("layer.1", of_family), ("layer.2", of_family))
    small = posed(cards=len(shares), form=Parallelism(4, copies, shares=shares, family_shares=family))
    larger = grown(small, 2)
    given = Placement(by_replica(small))
    placed = lifted(given, small, larger)
    assert (placed.device == by_replica(larger)).all()
    assert stepped(larger, placed).step_time_ns <= 2 * stepped(small, given).step_time_ns


def by_replica(of: Problem) -> np.ndarray:
    """The device of each op: that of its replica in its family."""
    return of.graph.copies.replica.astype(np.int32)


def test_families_of_other_shares_are_refused():
    one, other = (Parallelism(number, "whole", shares=(number // 2,) * 2, family_shares=(("layer.1", each),))
                  for number, each in ((4, (1, 3)), (8, (3, 5))))  # fmt: skip
    small = posed(form=one)
    with pytest.raises(ValueError, match=r"^larger: 8 micro-batches .* are no multiple of 4"):
        lifted(Placement(by_replica(small)), small, problem(other.of(small.graph.copies.original), small.cluster))


def test_where_memory_is_short_blocks_follow_each_other():
    small = equal_stages(2, 2, 2)
    given, larger = PIPELINES["gpipe"](small, simulate), grown(small, 4)
    peak = stepped(small, given).peak_memory_bytes.max()
    devices = tuple(replace(device, memory_bytes=int(peak) + 100) for device in larger.cluster.devices)
    tight = replace(larger, cluster=replace(larger.cluster, devices=devices))
    placed = lifted(given, small, tight)
    assert max(in_flight(tight, placed.device, stepped(tight, placed).timeline)) == 2


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (Parallelism(6), "larger: 6 micro-batches .* are no multiple of 4"),
        (Parallelism(8, "free"), "larger: 8 micro-batches .free"),
        (Parallelism(8, replicas=2), "larger: 8 micro-batches .*shares .4, 4."),
    ],
)
def test_another_form_is_refused(form: Parallelism, line: str):
    small = posed()
    with pytest.raises(ValueError, match=f"^{line}"):
        lifted(Placement(np.zeros(small.num_ops, np.int32)), small, problem(form.of(small.graph.copies.original), small.cluster))


def test_a_step_of_one_is_refused():
    with pytest.raises(ValueError, match="is a step of one micro-batch"):
        grown(posed(1), 2)
