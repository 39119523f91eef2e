"""Moving average, leave-one-out and the cut-off, by hand."""

import pytest
import torch

from gnnplace.training.advantage import MovingAverage, counted, leave_one_out

ALL = torch.tensor([True, True, True])


def test_moving_average_starts_at_the_failing_reward_so_that_first_valid_placements_gain():
    average = MovingAverage()
    assert average.advantage(torch.tensor([-1.0, -10.0])).tolist() == [9, 0]


def test_moving_average_by_hand():
    average = MovingAverage(decay=0.9, initial=-10.0)
    average.update(torch.tensor([-1.0, -2.0, -3.0]), ALL)
    assert average.average.tolist() == pytest.approx([0.9 * -10 + 0.1 * -2])
    average.update(torch.tensor([-1.0, -10.0, -10.0]), torch.tensor([True, False, False]))
    assert average.average.tolist() == pytest.approx([0.9 * -9.2 + 0.1 * -1])


def test_moving_average_may_start_at_the_first_rewards():
    average = MovingAverage(2, decay=0.9, initial=None)
    first = torch.tensor([-1.0, -3.0, -8.0])
    assert average.advantage(first).tolist() == [3, 1, -4]
    average.update(first, ~ALL)
    assert average.advantage(first).tolist() == [3, 1, -4]  # nobody counted
    average.update(first, ALL)
    assert average.average[0] == -4 and average.average[1].isnan()
    assert average.advantage(torch.tensor([-1.0])).tolist() == [3]
    average.update(torch.tensor([-2.0]), torch.tensor([True]))
    assert average.average[0] == pytest.approx(0.9 * -4 + 0.1 * -2)


def test_moving_average_stays_where_nobody_counts():
    average = MovingAverage()
    average.update(torch.tensor([-10.0, -10.0, -10.0]), ~ALL)
    assert average.average.tolist() == [-10]


def test_moving_averages_of_problems_are_apart_and_saved():
    average = MovingAverage(2, initial=0.0)
    average.update(torch.tensor([-1.0]), torch.tensor([True]), problem=1)
    assert average.average.tolist() == pytest.approx([0, -0.1])
    resumed = MovingAverage(2)
    resumed.load_state_dict(average.state_dict())
    assert resumed.average.equal(average.average)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_is_checked(decay):
    with pytest.raises(ValueError, match="decay"):
        MovingAverage(decay=decay)


def test_leave_one_out_by_hand():
    assert leave_one_out(torch.tensor([-1.0, -2.0, -6.0]), ALL).tolist() == [3, 1.5, -4.5]


def test_leave_one_out_leaves_out_who_does_not_count():
    advantage = leave_one_out(torch.tensor([-1.0, -2.0, -100.0]), torch.tensor([True, True, False]))
    assert advantage[:2].tolist() == [1, -1]
    assert leave_one_out(torch.tensor([-1.0, -2.0]), torch.tensor([True, False]))[0] == 0


def test_leave_one_out_sums_to_zero_over_who_counts():
    reward = torch.randn(9, generator=torch.Generator().manual_seed(0))
    counts = torch.arange(9) % 3 > 0
    assert leave_one_out(reward, counts)[counts].sum().abs() < 1e-5


def test_invalid_samples_count_before_the_cut_off_and_not_from_it_on():
    valid = torch.tensor([True, False])
    assert counted(valid, updates=499, cut_off=500).tolist() == [True, True]
    assert counted(valid, updates=500, cut_off=500).tolist() == [True, False]
    assert counted(valid, updates=10**6, cut_off=None).tolist() == [True, True]
