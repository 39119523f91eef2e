"""What policies stand beside: controls find what is there to be found, within their evaluations."""

import numpy as np
import pytest
from support.graphs import chains

from experiments import controls
from experiments.encoders import clustered
from gnnplace.placement import check
from gnnplace.simulator.simulator import simulate

EVALUATIONS = 64


@pytest.mark.parametrize("name", controls.CONTROLS)
def test_a_control_takes_its_evaluations_and_leaves_one_device(name, monkeypatch):
    of, counted = chains(4, 6, 2), []

    def counting(problem, placements, **how):
        counted.append(len(placements))
        return simulate(problem, placements, **how)

    monkeypatch.setattr(controls, "simulate", counting)
    found = controls.CONTROLS[name](of, EVALUATIONS, np.random.default_rng(0))
    (alone,) = simulate(of, [type(found)(np.zeros(of.num_ops, np.int32), found.schedule)])
    assert check(of, found) is None and simulate(of, [found])[0].step_time_ns < alone.step_time_ns
    assert 0.5 * EVALUATIONS < sum(counted) <= EVALUATIONS + 2


def test_the_table_of_clustered_groups_has_a_row_for_each_variant():
    others = {"gcn.k40-2": {"one_device_ns": 20, "heuristic_ns": 10, "bound_ns": 5}}
    steps = {"gcn.k40-2": {"greedy": 20, "best sample": 12}}
    found = {f"{name}/0": {"trained": steps, "untrained": steps} for name in clustered.VARIANTS}
    lines = clustered.table(found, others).splitlines()
    assert "| gnn: trained, greedy | 2.00 | 1.00 | 4.00 | 1 of 1 | 1 of 1 | 0 of 1 |" in lines
    assert len(lines) == 2 + 4 * len(clustered.VARIANTS)
