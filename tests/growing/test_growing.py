"""More is never worse (tests/growing/cases.py): a sample, and what makes it a promise."""

from typing import get_args

import numpy as np
import pytest
from growing.cases import EVALUATIONS, Case
from growing.problems import Growth, pair

from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate

# some that were worse by 11 to 21 % at 120 evaluations: where the first planners could use up the evaluations of all and, the last one,
# where no planner was asked without one of several equal devices
SAMPLE: list[tuple[Growth, int]] = [
    *(("one device more", 6), ("one device more", 10), ("memory doubled", 25), ("memory doubled", 28)),
    ("one device more", 46),
]


@pytest.mark.parametrize("kind", get_args(Growth))
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed == 1 else pytest.mark.slow) for seed in range(6)])
def test_the_larger_problem_has_every_placement_of_the_smaller_and_none_takes_longer(kind, seed):
    small, large = pair(kind, seed)
    there = [large.cluster.device_names.index(name) for name in small.cluster.device_names]
    placed = [np.random.default_rng(draw).integers(0, small.num_devices, small.num_ops).astype(np.int32) for draw in range(8)]
    placed += [np.full(small.num_ops, device, np.int32) for device in range(small.num_devices)]
    before = simulate(small, [Placement(device) for device in placed])
    after = simulate(large, [Placement(np.array(there, np.int32)[device]) for device in placed])
    for one, other in zip(before, after, strict=True):
        assert one.step_time_ns == other.step_time_ns and (one.infeasible is not None or other.infeasible is None)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), SAMPLE)
def test_more_is_never_worse(kind, seed, tmp_path):
    assert [Case(kind, seed, evaluations).broken(tmp_path) for evaluations in EVALUATIONS] == [None, None]
