"""A plan beside a rule: what devices do, what is sent, what stands elsewhere, worked by hand and on rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import equal_gpus
from support.layered import ACTIVATION, WEIGHT, layered

from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.portfolio import forms
from gnnplace.problems import Problem
from gnnplace.report.beside import KINDS, Beside, beside, header, rows, sentences
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.parallelism import Parallelism


def posed(number: int = 4, cards: int = 2, form: Parallelism | None = None) -> Problem:
    return problem((form or Parallelism(number)).of(layered(3)), equal_gpus(cards))


def of_rule(name: str, number: int = 4, cards: int = 2) -> tuple[Problem, Placement]:
    found = forms.again(name, posed(number, cards), number, simulate)
    return found.form, found.placement


def compared(plan: str, rule: str, **columns) -> Beside:
    return beside(of_rule(plan, **columns), of_rule(rule, **columns), rule)


def test_a_plan_beside_itself_has_nothing_elsewhere():
    found = compared("ddp", "ddp")
    assert found.elsewhere == (0, found.elsewhere.of, 0.0, {}) and found.elsewhere.of == 4 * 3
    assert len(sentences(found)) == 1 and "takes 0.0 % less for a micro-batch than ddp" in sentences(found)[0]


def test_a_cpu_at_work_is_named_and_what_it_does_under_the_rule():
    found = compared("ddp", "fsdp")
    at_work = replace(found, plan=found.plan._replace(cpus={"cpu:0": 0.45}), rule=found.rule._replace(cpus={"cpu:0": 0.0}))
    assert "cpu:0 computes for 45 % of the step, fsdp leaves it idle." in sentences(at_work)
    both = replace(at_work, rule=found.rule._replace(cpus={"cpu:0": 0.2}))
    assert "cpu:0 computes for 45 % of the step, fsdp for 20 %." in sentences(both)
    assert not any("cpu:0" in line for line in sentences(found))


@pytest.mark.parametrize("name", ["one-card", "ddp", "fsdp", "1f1b"])
def test_shares_of_a_device_are_a_whole_and_computing_is_the_simulator_s(name: str):
    form, placement = of_rule(name)
    (result,) = simulate(form, [placement])
    for each, busy in zip(compared(name, "ddp").plan.days.values(), result.busy_ns, strict=True):
        assert sum(each) == pytest.approx(1) and min(each) >= 0
        assert each.busy == pytest.approx(busy / result.step_time_ns)


@pytest.mark.parametrize("name", ["one-card", "ddp", "fsdp", "1f1b", "gpipe"])
def test_kinds_of_what_is_sent_sum_to_all(name: str):
    form, placement = of_rule(name)
    assert sum(compared(name, "ddp").plan.sent_bytes.values()) == simulate(form, [placement])[0].transferred_bytes


def test_what_is_sent_by_hand():
    sent = {name: compared(name, "ddp").plan.sent_bytes for name in ("one-card", "ddp", "1f1b")}
    assert sent["one-card"] == dict.fromkeys(KINDS, 0)
    assert sent["ddp"]["weights"] == sent["ddp"]["activations"] == 0 and sent["ddp"]["gradients"] >= 2 * 3 * WEIGHT
    assert sent["1f1b"]["weights"] == 0 and sent["1f1b"]["activations"] >= 2 * 4 * ACTIVATION


def test_sharded_weights_are_sent_and_their_gradients_come_back():
    form = posed(form=Parallelism(2, "free"))
    copies = form.graph.copies
    device = np.where(copies.micro_batch == 1, 1, 0).astype(np.int32)
    sums = copies.added & (copies.micro_batch != NONE)
    device[sums] = 0
    found = beside((form, Placement(device)), of_rule("ddp"), "ddp")
    sent = found.plan.sent_bytes
    assert sent["weights"] == 3 * WEIGHT and sent["gradients"] == 3 * WEIGHT + 4  # and the loss, to be divided


def test_micro_batches_are_alike_so_another_order_is_not_elsewhere():
    form = posed(form=Parallelism(4, "free"))
    copies = form.graph.copies

    def on(devices: tuple[int, ...]) -> tuple[Problem, Placement]:
        device = np.where(copies.micro_batch == NONE, 0, np.array(devices)[copies.micro_batch])
        device[copies.added] = 0
        return form, Placement(device.astype(np.int32))

    assert beside(on((0, 1, 0, 1)), on((1, 1, 0, 0)), "rule").elsewhere.copies == 0
    found = beside(on((0, 0, 0, 1)), on((1, 1, 0, 0)), "rule")
    assert found.elsewhere.copies == 3 and found.elsewhere.modules == dict.fromkeys(found.elsewhere.modules, 1)
    assert found.elsewhere.work == pytest.approx(1 / 4)
    assert "3 of 12 copies of modules, 25 % of the work, stand elsewhere than rule would put them: of layer.0 (1)" in sentences(found)[1]


@pytest.mark.parametrize("cards", [2, 8])
def test_the_table_is_short_whatever_the_cluster(cards: int):
    found = compared("fsdp", "ddp", number=8, cards=cards)
    table = rows(found)
    assert len(table) <= 11 and header(found) == ("", "this plan", "ddp") and all(len(row) == 3 for row in table)
    assert sum("computes / waits / idle" in row[0] for row in table) == min(cards, 5)


def test_a_step_of_one_micro_batch_is_refused():
    one = posed(1)
    with pytest.raises(ValueError, match="ddp: has no step of several micro-batches"):
        beside(of_rule("ddp"), (one, Placement(np.zeros(one.num_ops, np.int32))), "ddp")
