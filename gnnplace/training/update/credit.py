"""Credit: from the rewards of an episode's steps to the advantage of each step's decisions; and which samples count.

The return of a step is compared with an expected return: of `MovingAverage` (an exponential moving average, the
hierarchical planner's), `RecentMean` (Placeto's), `leave_one_out` (the other samples of the problem, without memory),
the policy's own critic, or 0. Samples that do not count enter neither the expected return nor the loss.

What a grouping is expected to reach must not depend on it: `leave_one_out` compares decisions that the samples of a
grouping share with the samples of other groupings.

Computed in float64: samples that take the same time get an advantage of exactly 0.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple, assert_never

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from gnnplace.config.training import CreditConfig, ReturnKind
from gnnplace.training.update.reward import INVALID


class Credit(NamedTuple):
    """The return of every step of every sample, how much better than expected it is, and whether it counts.

    `advantage` is of a sample's own decisions, `shared` of those that it shares with all samples of its grouping.
    """

    returns: Float64[Tensor, "steps samples"]
    advantage: Float64[Tensor, "steps samples"]
    shared: Float64[Tensor, "steps samples"]
    counts: Bool[Tensor, "steps samples"]

    def of(self, rows: slice) -> Credit:
        """The credit of some of the samples."""
        return Credit(*(part[:, rows] for part in self))


def counted(valid: Bool[Tensor, "steps samples"], updates: int, cut_off: int | None) -> Bool[Tensor, "steps samples"]:
    """Which samples count after `updates` updates: all before the cut-off, from then on only the valid ones.

    The cut-off of Mirhoseini et al. (ICLR 2018) is 500 updates; without one, all samples always count.
    """
    return valid.clone() if cut_off is not None and updates >= cut_off else torch.ones_like(valid)


def returns(
    reward: Float64[Tensor, "steps samples"], kind: ReturnKind, gamma: float
) -> Float64[Tensor, "steps samples"]:
    """The return of each step.

    `terminal`: the last step's reward for all of them. `to-go`: the discounted rewards from the step on. `improvement`:
    the same of the reward that each step adds; without discount the last reward minus that of the step before. `own`:
    the step's reward alone, times `gamma ** i` for step i = 1, 2, ... (Duan et al., NeurIPS 2024, eq. 14). `episode`:
    for all of them the sum of all rewards, each times `gamma` for every step after it (the public code of the same).
    """
    match kind:
        case "terminal":
            return reward[-1:].expand_as(reward)
        case "to-go":
            sums = [reward[-1]]
            for earlier in reward[:-1].flip(0):
                sums.append(earlier + gamma * sums[-1])
            return torch.stack(sums[::-1])
        case "improvement":
            return returns(torch.cat([reward[:1], reward.diff(dim=0)]), "to-go", gamma)
        case "own":
            return reward * _powers(gamma, range(1, len(reward) + 1))
        case "episode":
            return (reward * _powers(gamma, range(len(reward))).flip(0)).sum(0).expand_as(reward)
        case _:
            assert_never(kind)


def _powers(gamma: float, exponents: range) -> Float64[Tensor, "steps 1"]:
    return torch.tensor([[gamma**exponent] for exponent in exponents], dtype=torch.float64)


class MovingAverage(nn.Module):
    """The expected return: `average <- decay * average + (1 - decay) * mean counted return`, by problem and step.

    It starts at `initial`: the reward of an invalid placement encourages the first valid ones; None is the mean of the
    first returns that count. It is of one controller, as in the paper, and of one problem and step, because their
    returns don't compare.
    """

    def __init__(self, decay: float = 0.9, initial: float | None = INVALID) -> None:
        super().__init__()
        self.decay, self.initial = decay, torch.nan if initial is None else initial
        self.average: dict[int, Float64[Tensor, " steps"]] = {}

    def get_extra_state(self) -> dict[int, Tensor]:
        return {problem: average.cpu() for problem, average in self.average.items()}

    def set_extra_state(self, state: dict[int, Tensor]) -> None:
        self.average = dict(state)

    def advantage(
        self, values: Float64[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"], problem: int = 0
    ) -> Float64[Tensor, "steps samples"]:
        """The returns minus the average before these samples; then the average moves towards them.

        It stays if no sample counts.
        """
        before = self.average.get(problem, torch.full((len(values),), self.initial, dtype=torch.float64)).to(
            values.device
        )
        mean = _mean(values, counts)
        expected = torch.where(before.isnan(), mean.nan_to_num(), before)
        moved = torch.where(before.isnan(), mean, before + (1 - self.decay) * (mean - before))
        self.average[problem] = torch.where(mean.isnan(), before, moved)
        return values - expected[:, None]


class RecentMean(nn.Module):
    """The expected return: the mean of the last `window` updates, with the present one, by problem and step.

    An update's value is the mean return of its samples that count.

    Placeto's "moving average over the last k episodes", one a graph and time step; its authors' code takes the present
    episode in.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        self.recent: dict[int, Float64[Tensor, "updates steps"]] = {}

    def get_extra_state(self) -> dict[int, Tensor]:
        return {problem: rows.cpu() for problem, rows in self.recent.items()}

    def set_extra_state(self, state: dict[int, Tensor]) -> None:
        self.recent = dict(state)

    def advantage(
        self, values: Float64[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"], problem: int = 0
    ) -> Float64[Tensor, "steps samples"]:
        """The returns minus their mean over the last updates; an update without counted samples is left out."""
        present = _mean(values, counts)[None]
        before = self.recent.get(problem, present[:0]).to(values.device)
        self.recent[problem] = torch.cat([before, present])[-self.window :]
        return values - self.recent[problem].nanmean(0).nan_to_num()[:, None]


Average = MovingAverage | RecentMean


def average(config: CreditConfig) -> Average:
    """The average of a configuration's baseline; a baseline without memory leaves it unused."""
    return (
        RecentMean(config.window) if config.baseline == "recent-mean" else MovingAverage(config.decay, config.initial)
    )


def _mean(values: Float64[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"]) -> Float64[Tensor, " steps"]:
    """The mean of the samples that count, step by step; NaN where none does."""
    return torch.where(counts, values, 0.0).sum(1) / counts.sum(1)


def leave_one_out(
    values: Float64[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"], each: int = 1
) -> Float64[Tensor, "steps samples"]:
    """Each return minus the mean of the *other* samples that count; 0 where there is no other.

    Others are those outside of the `each` samples, one after another, among which a sample is: its grouping's.
    """
    centred = values - values[:, :1]  # equal returns are exactly 0 now
    number = counts.unflatten(1, (-1, each)).sum(2)
    total = torch.where(counts, centred, 0.0).unflatten(1, (-1, each)).sum(2)
    others = number.sum(1, keepdim=True) - number
    expected = (total.sum(1, keepdim=True) - total) / others.clamp(min=1)
    there, expected = (part.repeat_interleave(each, 1) for part in (others > 0, expected))
    return torch.where(there, centred - expected, 0.0)


def best_of_draws(
    values: Float64[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"], draws: int
) -> Float64[Tensor, "steps samples"]:
    """How much each return adds to the best of `draws` samples, in expectation over the others that count.

    Its mean over all sets S of `draws - 1` other samples of `max(0, return - max S)`: with it, the gradient is that of
    the expected best of so many draws (Walder and Karkhanis, 2025). 0 if fewer than `draws` samples count.

    Example:
        >>> best_of_draws(torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool), 2)
        tensor([[0.0000, 0.5000, 2.5000]], dtype=torch.float64)
    """
    gained = torch.zeros_like(values)
    for row, present, gain in zip(values, counts, gained, strict=True):
        ordered, place = row[present].sort()
        number = len(ordered)
        if number < draws:
            continue
        chance = torch.tensor([comb(below, draws - 2) for below in range(number)], dtype=values.dtype)
        chance = (chance / comb(number - 1, draws - 1)).to(values.device)
        summed, weighed = chance.cumsum(0) - chance, (chance * ordered).cumsum(0) - chance * ordered
        of_present = torch.empty_like(ordered).scatter_(0, place, ordered * summed - weighed)
        gain[present] = of_present.clamp(min=0.0)
    return gained


def spread(
    values: Float64[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"]
) -> Float64[Tensor, " steps"]:
    """The standard deviation of the returns that count, step by step; 0 where fewer than two do."""
    centred = torch.where(counts, values - values[:, :1], 0.0)
    number = counts.sum(1)
    mean = centred.sum(1) / number.clamp(min=1)
    squares = torch.where(counts, (centred - mean[:, None]).square(), 0.0).sum(1)
    return (squares / (number - 1).clamp(min=1)).sqrt()


def credit(
    reward: Float64[Tensor, "steps samples"],
    counts: Bool[Tensor, "steps samples"],
    config: CreditConfig,
    remembered: Average,
    problem: int,
    values: Float[Tensor, "steps samples"] | None = None,
    placements: int = 1,
) -> Credit:
    """The credit of one problem's samples, `placements` of each grouping; `values` are a critic's.

    Raises ValueError if a critic is asked for and there is none.
    """
    episode_returns, shared = returns(reward, config.returns, config.gamma), None
    match config.baseline:
        case "moving-average" | "recent-mean":
            advantage = remembered.advantage(episode_returns, counts, problem)
        case "leave-one-out":
            one = config.draws == 1
            advantage = (
                leave_one_out(episode_returns, counts) if one else best_of_draws(episode_returns, counts, config.draws)
            )
            shared = leave_one_out(episode_returns, counts, placements)
        case "critic":
            if values is None:
                raise ValueError(
                    "training.credit.baseline: this policy has no critic; choose leave-one-out or moving-average"
                )
            advantage = episode_returns - values.double()
        case "none":
            advantage = episode_returns
        case _:
            assert_never(config.baseline)
    shared = advantage if shared is None else shared
    if config.normalise:
        unit = spread(episode_returns, counts).clamp(min=config.floor)[:, None]
        advantage, shared = advantage / unit, shared / unit
    return Credit(episode_returns, advantage, shared, counts)
