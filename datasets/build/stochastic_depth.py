"""Stochastic depth (Huang et al. 2016): in training, the branch of a residual block is left out at random, image by image."""

from __future__ import annotations

from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Keeps each row of `[batch ...]` with a probability, and divides by it so that the expectation stays; else zeros the row."""

    def __init__(self, kept: float) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, branch: Tensor) -> Tensor:
        if not self.training or self.kept == 1:
            return branch
        mask = branch.new_empty([len(branch), *[1] * (branch.dim() - 1)]).bernoulli_(self.kept)
        return branch * (mask / self.kept)
