"""Returns, moving average, leave-one-out, spread and the cut-off, by hand."""

from itertools import combinations, product

import pytest
import torch

from gnnplace.config.training import CreditConfig
from gnnplace.training.update.credit import (
    MovingAverage,
    RecentMean,
    best_of_draws,
    counted,
    credit,
    leave_one_out,
    returns,
    spread,
)


def row(*values):
    """One step's rewards."""
    return torch.tensor([values], dtype=torch.float64)


def everyone(values):
    return torch.ones(values.shape, dtype=torch.bool)


def moved(average, *rewards, counts=None, problem=0):
    """The advantage of one step's rewards, which the average then takes in."""
    values = row(*rewards)
    return average.advantage(values, everyone(values) if counts is None else torch.tensor([counts]), problem)[0].tolist()


def test_the_return_of_a_step_is_the_last_reward_what_is_still_to_come_its_own_or_all():
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]], dtype=torch.float64)
    assert returns(reward, "terminal", 1.0).tolist() == [[4, 40]] * 3
    assert returns(reward, "to-go", 1.0).tolist() == [[7, 70], [6, 60], [4, 40]]
    assert returns(reward, "to-go", 0.5).tolist() == [[3, 30], [4, 40], [4, 40]]
    assert returns(reward, "improvement", 1.0).tolist() == [[4, 40], [3, 30], [2, 20]]
    assert returns(reward, "improvement", 0.5).tolist() == [[1 + 0.5 * 2, 10 + 0.5 * 20], [1 + 0.5 * 2, 10 + 0.5 * 20], [2, 20]]
    assert returns(reward, "own", 1.0).tolist() == reward.tolist()
    assert returns(reward, "own", 0.5).tolist() == [[0.5, 5], [0.5, 5], [0.5, 5]]
    assert returns(reward, "episode", 0.5).tolist() == [[0.25 + 1 + 4, 2.5 + 10 + 40]] * 3


def test_moving_average_starts_at_the_failing_reward_so_that_first_valid_placements_gain():
    assert moved(MovingAverage(), -1.0, -10.0) == [9, 0]


def test_moving_average_by_hand():
    average = MovingAverage(decay=0.9, initial=-10.0)
    moved(average, -1.0, -2.0, -3.0)
    assert average.average[0].tolist() == pytest.approx([0.9 * -10 + 0.1 * -2])
    moved(average, -1.0, -10.0, -10.0, counts=[True, False, False])
    assert average.average[0].tolist() == pytest.approx([0.9 * -9.2 + 0.1 * -1])


def test_moving_average_may_start_at_the_first_returns_that_count():
    average = MovingAverage(decay=0.9, initial=None)
    assert moved(average, -1.0, -3.0, -8.0, counts=[False] * 3) == [-1, -3, -8] and average.average[0].isnan()
    assert moved(average, -1.0, -3.0, -8.0, counts=[True, True, False]) == [1, -1, -6]  # -2 is expected: who doesn't count doesn't enter
    assert average.average[0].tolist() == [-2]
    assert moved(average, -2.0) == [0]


def test_moving_averages_are_of_a_problem_and_a_step_and_saved():
    average = MovingAverage(initial=0.0)
    two_steps = torch.tensor([[-1.0], [-2.0]], dtype=torch.float64)
    average.advantage(two_steps, everyone(two_steps), problem=1)
    moved(average, -5.0, problem=0)
    assert average.average[1].tolist() == pytest.approx([-0.1, -0.2]) and average.average[0].tolist() == pytest.approx([-0.5])
    resumed = MovingAverage(initial=0.0)
    resumed.load_state_dict(average.state_dict())
    assert {problem: value.tolist() for problem, value in resumed.average.items()} == {
        problem: value.tolist() for problem, value in average.average.items()
    }


def test_a_recent_mean_is_of_the_last_updates_and_the_present_one():
    recent = RecentMean(2)
    assert moved(recent, -1.0, -3.0) == [1, -1]
    assert moved(recent, -4.0, -6.0) == [-0.5, -2.5]  # -3.5 is the mean of -2 and -5
    assert moved(recent, -9.0, -9.0) == [-2, -2]  # the first update is forgotten
    assert moved(recent, -8.0, problem=1) == [0]
    resumed = RecentMean(2)
    resumed.load_state_dict(recent.state_dict())
    assert moved(resumed, -11.0) == moved(recent, -11.0) == [-1]


def test_a_recent_mean_leaves_out_who_does_not_count():
    recent = RecentMean(3)
    assert moved(recent, -5.0, -7.0, counts=[False, False]) == [-5, -7]  # nothing is expected yet
    assert moved(recent, -1.0, -3.0, counts=[True, False]) == [0, -2]
    assert moved(recent, -3.0, -9.0, counts=[True, False]) == [-1, -7]


def test_leave_one_out_by_hand():
    values = row(-1.0, -2.0, -6.0)
    assert leave_one_out(values, everyone(values)).tolist() == [[3, 1.5, -4.5]]


def test_leave_one_out_leaves_out_who_does_not_count():
    advantage = leave_one_out(row(-1.0, -2.0, -100.0), torch.tensor([[True, True, False]]))
    assert advantage[0, :2].tolist() == [1, -1]
    assert leave_one_out(row(-1.0, -2.0), torch.tensor([[True, False]]))[0, 0] == 0


def test_leave_one_out_sums_to_zero_over_who_counts():
    values = torch.randn(1, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = torch.arange(9)[None] % 3 > 0
    assert leave_one_out(values, counts)[counts].sum().abs() < 1e-12


@pytest.mark.parametrize("samples", [3, 16, 60, 64])
@pytest.mark.parametrize("value", [-0.1234567890123, -3.3, -1 / 3])
def test_equal_rewards_are_worth_exactly_nothing(samples, value):
    values = torch.full((1, samples), value, dtype=torch.float64)
    made = credit(values, everyone(values), CreditConfig(), MovingAverage(), 0)
    assert made.advantage.count_nonzero() == 0


def test_spreads_below_the_floor_stay_small():
    wide, narrow = row(-1.0, -2.0), row(-1.0, -1.0000001)
    config = CreditConfig(floor=1e-3)
    assert credit(wide, everyone(wide), config, MovingAverage(), 0).advantage.tolist() == [pytest.approx([2**0.5, -(2**0.5)])]
    assert credit(narrow, everyone(narrow), config, MovingAverage(), 0).advantage.abs().max() == pytest.approx(1e-7 / 1e-3)


def test_spread_is_of_the_samples_that_count_step_by_step():
    values = torch.tensor([[1.0, 3.0, 50.0], [2.0, 2.0, 9.0]], dtype=torch.float64)
    assert spread(values, torch.tensor([[True, True, False]] * 2)).tolist() == pytest.approx([2**0.5, 0])
    assert spread(values, torch.tensor([[True, False, False]] * 2)).tolist() == [0, 0]


def test_a_critic_is_compared_with_and_must_be_there():
    values = row(-1.0, -2.0)
    config = CreditConfig(baseline="critic", normalise=False)
    made = credit(values, everyone(values), config, MovingAverage(), 0, torch.tensor([[-1.5, -1.5]]))
    assert made.advantage.tolist() == [[0.5, -0.5]]
    with pytest.raises(ValueError, match=r"training\.credit\.baseline: this policy has no critic"):
        credit(values, everyone(values), config, MovingAverage(), 0)


def test_without_a_baseline_returns_are_advantages():
    values = row(3.0, 1.0)
    made = credit(values, everyone(values), CreditConfig(baseline="none", normalise=False), MovingAverage(), 0)
    assert made.advantage.tolist() == made.returns.tolist() == [[3, 1]]
    with pytest.raises(ValueError, match=r"training\.credit\.normalise: true .* baseline 'none' does not measure"):
        CreditConfig(baseline="none", normalise=True)


def test_a_moving_average_is_not_divided_by_a_spread_around_another_mean():
    with pytest.raises(ValueError, match=r"training\.credit\.normalise: true divides advantages by a spread around the samples' own mean"):
        CreditConfig(baseline="moving-average", normalise=True)


def test_invalid_samples_count_before_the_cut_off_and_not_from_it_on():
    valid = torch.tensor([[True, False]])
    assert counted(valid, updates=499, cut_off=500).tolist() == [[True, True]]
    assert counted(valid, updates=500, cut_off=500).tolist() == [[True, False]]
    assert counted(valid, updates=10**6, cut_off=None).tolist() == [[True, True]]


@pytest.mark.parametrize("draws", [2, 3, 5])
def test_the_gain_of_a_draw_is_what_it_adds_to_the_best_of_others_on_average(draws):
    values, counts = row(0.3, -1.0, 7.0, 2.0, 2.0, -0.5, 1.0), torch.tensor([[True, True, False, True, True, True, True]])
    gained = best_of_draws(values, counts, draws)[0]
    present = [number for number in range(7) if counts[0, number]]
    for number in present:
        others = list(combinations([other for other in present if other != number], draws - 1))
        gains = [max(0.0, float(values[0, number] - max(values[0, other] for other in some))) for some in others]
        assert float(gained[number]) == pytest.approx(sum(gains) / len(others), abs=1e-12)
    assert gained[2] == 0


def test_fewer_samples_than_draws_gain_nothing():
    assert best_of_draws(row(1.0, 2.0), everyone(row(1.0, 2.0)), 3).tolist() == [[0, 0]]


def test_under_the_gains_of_draws_the_gradient_is_that_of_the_expected_best():
    """Over all draws of four samples of three options: the mean of sum gain * grad log p, times draws / samples."""
    logits, worth, draws, samples = torch.tensor([0.2, -0.4, 0.7], dtype=torch.float64, requires_grad=True), (1.0, 3.0, 0.0), 2, 4
    chance = logits.softmax(0)
    best = sum(chance[a] * chance[b] * max(worth[a], worth[b]) for a, b in product(range(3), repeat=2))
    (exact,) = torch.autograd.grad(best, logits)
    estimate = torch.zeros(3, dtype=torch.float64)
    for drawn in product(range(3), repeat=samples):
        gained = best_of_draws(row(*(worth[option] for option in drawn)), torch.ones(1, samples, dtype=torch.bool), draws)[0]
        score = sum(gain * logits.log_softmax(0)[option] for gain, option in zip(gained, drawn, strict=True))
        probability = float(torch.stack([chance[option] for option in drawn]).prod().detach())
        estimate += probability * torch.autograd.grad(score, logits)[0] * draws / samples
    torch.testing.assert_close(estimate, exact)


def test_credit_of_several_draws_is_their_gain_and_shared_decisions_keep_the_mean():
    rewards = row(1.0, 2.0, 4.0, 8.0)
    config = CreditConfig(draws=2, normalise=False)
    given = credit(rewards, everyone(rewards), config, MovingAverage(), 0, placements=2)
    assert given.advantage.tolist() == best_of_draws(rewards, everyone(rewards), 2).tolist()
    assert given.shared.tolist() == leave_one_out(rewards, everyone(rewards), 2).tolist()
    with pytest.raises(ValueError, match=r"training\.credit\.draws: 2 is of baseline leave-one-out"):
        CreditConfig(draws=2, baseline="none", normalise=False)
