"""Random stages and shares: they keep the rules, cut a row in order, and share micro-batches where copies are free."""

from __future__ import annotations

import numpy as np
import pytest
from support.equal_stages import equal_stages
from support.graphs import chains

import gnnplace as gp
from gnnplace.baselines import sampled_stages
from gnnplace.baselines.pipelines.rows import passes_over, rows_to_cut
from gnnplace.baselines.sampled_stages import has_stages, stage_placement
from gnnplace.graph import NONE
from gnnplace.placement import check


@pytest.mark.parametrize("copies", ["together", "free", "fetched", "anchored", "whole"])
def test_draws_keep_the_rules_and_vary(copies):
    posed = gp.problem("squeezenet", cluster="mixed-4", micro_batches=4, copies=copies)
    drawn = [stage_placement(posed, np.random.default_rng(seed), "memory") for seed in range(12)]
    assert all(check(posed, each) is None and each.schedule == "memory" for each in drawn)
    assert np.array_equal(drawn[3].device, stage_placement(posed, np.random.default_rng(3), "memory").device)
    if copies != "whole":  # which is one unit
        assert len({each.device.tobytes() for each in drawn}) > 6
        assert any(len(np.unique(each.device)) == 4 for each in drawn)


def test_copies_that_stand_together_are_cut_into_stages_of_about_equal_work():
    posed = equal_stages(4, 12, 4)
    copies, (row, *_) = posed.graph.copies, rows_to_cut(passes_over(posed))
    runs = []
    for seed in range(40):
        device = stage_placement(posed, np.random.default_rng(seed), "memory").device
        of_place = np.full(row.length, NONE)
        of_place[row.place[copies.source]] = device
        runs.append(1 + np.count_nonzero(np.diff(of_place)))
        if runs[-1] == len(np.unique(of_place)) == 4:
            assert np.unique(of_place, return_counts=True)[1].max() <= row.length / 2
    assert {4, 7, 8} <= set(runs)  # a stage a device, there and back, in turn


def test_free_copies_of_a_micro_batch_share_a_device_where_there_is_one_stage():
    posed = gp.problem("squeezenet", cluster="k40-4", micro_batches=8, copies="free")
    copies, whole = posed.graph.copies, 0
    for seed in range(20):
        device = stage_placement(posed, np.random.default_rng(seed), "fifo").device
        again = (copies.micro_batch != NONE) & ~copies.added
        devices = [set(device[again & (copies.micro_batch == number)].tolist()) for number in range(8)]
        if all(len(each) == 1 for each in devices):
            whole += 1
            assert len(set(device[copies.micro_batch == NONE].tolist())) == 4  # weights are spread
            assert sorted(np.bincount([each.pop() for each in devices], minlength=5)[1:].tolist())[0] >= 1
    assert 5 <= whole <= 15


def test_only_a_step_of_several_micro_batches_on_one_replica_has_stages():
    assert not has_stages(chains(2, 2, 2))
    assert has_stages(gp.problem("squeezenet", cluster="k40-2", micro_batches=2))
    assert not has_stages(gp.problem("squeezenet", cluster="k40-2", micro_batches=2, replicas=2))


def test_a_device_that_is_three_times_as_fast_has_three_quarters_of_the_places_and_of_the_micro_batches(monkeypatch):
    monkeypatch.setattr(sampled_stages, "UNEVEN", (0.0, 0.0, 0.0))
    work_ns = np.tile([30.0, 10.0], (8, 1))
    generator = np.random.default_rng(0)
    once = sampled_stages._Row(np.arange(8), work_ns)
    apart = sampled_stages._placed(once, [np.array([0]), np.array([1])], np.full(8, NONE), 4, generator)
    assert apart.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    copied = sampled_stages._Row(np.zeros(4, np.int64), work_ns)
    assert sampled_stages._placed(copied, [np.array([0, 1])], np.arange(4), 4, generator).tolist() == [0, 1, 1, 1]
    homes = sampled_stages._placed(once, [np.array([0, 1])], np.full(8, NONE), 4, generator)
    assert homes.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]  # weights are spread by place, not by speed
