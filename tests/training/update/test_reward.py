"""Rewards by hand."""

import math

import numpy as np
import pytest

from gnnplace.config.training import RewardConfig
from gnnplace.result import StepResult
from gnnplace.training.update.reward import INVALID, inverse, log_speedup, negative_seconds, negative_square_root, of, overflow


def took(step_time_ns, peaks=(100, 200), infeasible=None):
    peak = None if peaks is None else np.array(peaks)
    return StepResult("critical-path", step_time_ns, infeasible, peak, np.zeros(2, dtype=np.int64), 0, 0)


MEMORY = np.array([100, 200])


def test_negative_square_root_of_seconds():
    assert negative_square_root(took(250_000_000)) == -0.5
    assert negative_square_root(took(4_000_000_000)) == -2
    assert negative_square_root(took(4_000_000_000)) < negative_square_root(took(250_000_000))


def test_negative_square_root_of_the_time_over_a_reference():
    config = RewardConfig(kind="sqrt-ratio")
    assert of(took(4000), config, 1000, MEMORY) == -2 and of(took(250), config, 1000, MEMORY) == -0.5
    assert of(took(250, infeasible="memory"), config, 1000, MEMORY) == INVALID
    assert of(took(250_000_000), RewardConfig(kind="sqrt"), 1000, MEMORY) == -0.5


def test_an_invalid_placement_is_as_bad_as_a_step_of_100_seconds():
    assert negative_square_root(took(1, infeasible="memory")) == negative_square_root(took(100 * 10**9)) == INVALID == -10
    assert negative_square_root(took(None, None, "no link"), invalid=-3.0) == -3


def test_seconds_are_charged_for_the_gigabytes_that_a_device_lacks():
    memory, gigabyte = np.array([8, 8]) * 10**9, 10**9
    assert negative_seconds(took(800_000_000, (9 * gigabyte, 1), "memory"), memory, 2.0) == pytest.approx(-2.8)
    assert negative_seconds(took(800_000_000, (9 * gigabyte, 10 * gigabyte), "memory"), memory, 2.0) == pytest.approx(-4.8)
    assert negative_seconds(took(800_000_000, (8 * gigabyte, 1)), memory, 2.0) == -0.8


def test_seconds_end_where_invalid_placements_are():
    assert negative_seconds(took(12 * 10**9), MEMORY, 2.0) == negative_seconds(took(None, None, "no link"), MEMORY, 2.0) == INVALID
    assert negative_seconds(took(500, infeasible="colocation group split"), MEMORY, 2.0) == INVALID


def test_inverse_of_seconds_and_nothing_for_what_fails():
    assert inverse(took(250_000_000)) == 4
    assert inverse(took(250_000_000)) > inverse(took(4_000_000_000)) > inverse(took(1, infeasible="memory")) == 0


def test_log_speedup_compares_with_the_reference():
    assert log_speedup(took(500), 500, MEMORY, 1.0) == 0
    assert log_speedup(took(250), 500, MEMORY, 1.0) == pytest.approx(math.log(2))
    assert log_speedup(took(1000), 500, MEMORY, 1.0) == pytest.approx(-math.log(2))


def test_overflow_is_the_missing_share_of_memory_summed_over_devices():
    assert overflow(np.array([150, 300]), MEMORY) == 1.0
    assert overflow(np.array([100, 300]), MEMORY) == 0.5
    assert overflow(np.array([0, 200]), MEMORY) == 0
    assert overflow(np.array([7, 0]), np.array([0, 0])) == 7  # of a device without memory


def test_log_speedup_charges_overflow():
    assert log_speedup(took(500, (150, 300), "memory"), 500, MEMORY, 5.0) == -5.0
    assert log_speedup(took(250, (150, 300), "memory"), 500, MEMORY, 5.0) == pytest.approx(math.log(2) - 5)


@pytest.mark.parametrize("result", [took(None, None, "no link"), took(500, infeasible="colocation group split")])
def test_log_speedup_of_a_placement_that_breaks_another_rule(result):
    assert log_speedup(result, 500, MEMORY, 5.0) == INVALID


def test_the_reward_of_what_cannot_run_is_a_knob():
    """The failing signal of ColocRL is chosen for each graph."""
    for kind, result in (("sqrt", took(1, infeasible="memory")), ("log-ratio", took(None, None, "no link"))):
        assert of(result, RewardConfig(kind=kind, invalid=-3.0), 500, MEMORY) == -3
        assert of(result, RewardConfig(kind=kind), 500, MEMORY) == INVALID
