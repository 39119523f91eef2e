"""Advantages: how much better than expected each sample did, and which samples count.

`MovingAverage` is the paper's (an exponential moving average of the rewards); `leave_one_out` compares each sample
with the others of its problem and needs no memory. Both leave samples that do not count out of what is expected;
the loss leaves them out too (`training/reinforce.py`).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnnplace.training.reward import INVALID


def counted(valid: Bool[Tensor, " samples"], updates: int, cut_off: int | None) -> Bool[Tensor, " samples"]:
    """Which samples count in an update after `updates` earlier ones: all before the cut-off, only the valid ones from it on.

    The cut-off of Mirhoseini et al. (ICLR 2018) is 500 updates; without one, all samples always count.
    """
    return valid.clone() if cut_off is not None and updates >= cut_off else torch.ones_like(valid)


class MovingAverage(nn.Module):
    """What to expect of each problem: `average <- decay * average + (1 - decay) * mean counted reward`, a buffer.

    It starts at `initial`, the reward of an invalid placement, so that the first valid ones are encouraged; with None, at the mean of
    the first rewards. The average is of one controller, and of one problem, because rewards of different problems don't compare.
    """

    average: Tensor

    def __init__(self, num_problems: int = 1, decay: float = 0.9, initial: float | None = INVALID) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay: {decay} is not at least 0 and below 1")
        self.decay = decay
        self.register_buffer("average", torch.full((num_problems,), torch.nan if initial is None else initial))

    def advantage(self, reward: Float[Tensor, " samples"], problem: int = 0) -> Float[Tensor, " samples"]:
        """Reward minus what was expected before these samples."""
        average = self.average[problem]
        return reward - torch.where(average.isnan(), reward.mean(), average)

    def update(self, reward: Float[Tensor, " samples"], counts: Bool[Tensor, " samples"], problem: int = 0) -> None:
        """Move towards the mean of the rewards that count; stay where none does."""
        if counts.any():
            mean, average = reward[counts].mean(), self.average[problem]
            self.average[problem] = torch.where(average.isnan(), mean, average + (1 - self.decay) * (mean - average))


def leave_one_out(reward: Float[Tensor, " samples"], counts: Bool[Tensor, " samples"]) -> Float[Tensor, " samples"]:
    """Reward minus the mean reward of the *other* counted samples of the same problem; 0 where there is no other."""
    total = reward[counts].sum() - torch.where(counts, reward, 0)
    others = counts.sum() - counts.long()
    return torch.where(others > 0, reward - total / others.clamp(min=1), 0)
