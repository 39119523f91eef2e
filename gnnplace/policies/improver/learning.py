"""The phase that the improver brings: it learns the gain of every move of a pool.

All moves of a pool are evaluated, so the policy gradient needs no estimate: the expected worth of a draw is a sum over
all options (Allen et al., Mean actor critic, 2017; Ciosek and Whiteson, Expected policy gradients, AAAI 2018). A search
tries several moves and keeps the best, so the objective here is the expected *best of several draws*, which rewards a
policy for moves that are sometimes very good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from gnnplace.policies.improver.config import MovesConfig
from gnnplace.policies.improver.pools import Searched, rows_of
from gnnplace.policies.improver.scorer import MoveScorer
from gnnplace.policies.protocol import Practice
from gnnplace.problems import Problem


class LearnsMoves:
    """The loss over all moves of the pools that a search of a problem meets, guided by the scorer.

    A `protocol.Objective`.
    """

    name = "moves"

    def __init__(self, scorer: MoveScorer, config: MovesConfig) -> None:
        self._scorer, self._config = scorer, config
        self.updates, self.lr = config.updates, config.lr

    def prepare(self, problems: Sequence[Problem], practice: Practice) -> None:
        """Takes the range of features from moves of the problems, unless the scorer has a range."""
        if not self._scorer.knows_range:
            self._scorer.fit_range(torch.from_numpy(rows_of(problems, self._config, practice)))

    def loss(self, problem: Problem, practice: Practice) -> tuple[Float[Tensor, ""] | None, Mapping[str, float]]:
        """The mean loss of the pools, and the share of the best gain that the best of the policy's first moves has."""
        config, losses, shares = self._config, [], []
        for pool in Searched(problem, self._rank, config, practice).pools():
            logits = self._scores(pool.rows)
            gain = torch.from_numpy(pool.gain).to(logits)
            losses.append(all_actions(logits, gain, config.best_of, config.shared, config.power))
            first = logits.detach().argsort(descending=True)[: config.best_of]
            shares.append(float(gain[first].max() / gain.max()))
        return (torch.stack(losses).mean(), {"gained": float(np.mean(shares))}) if losses else (None, {})

    def _scores(self, rows: Float32[np.ndarray, "*moves features"]) -> Float[Tensor, " *moves"]:
        return self._scorer(torch.from_numpy(rows).to(self._scorer.low))

    @torch.no_grad()
    def _rank(self, rows: Float32[np.ndarray, "moves features"]) -> Float[np.ndarray, " moves"]:
        return self._scores(rows).cpu().numpy()


def best_of_draws(logits: Float[Tensor, " options"], worth: Float[Tensor, " options"], draws: int) -> Float[Tensor, ""]:
    """The expected largest worth of independent draws from the softmax of `logits`, differentiable in them.

    With options by falling worth and `T_i` the probability of option i or a later one, the best of k draws is option i
    with the probability `T_i^k - T_(i+1)^k`.

        >>> best_of_draws(torch.zeros(2), torch.tensor([1.0, 0.0]), 2)
        tensor(0.7500)
    """
    order = worth.argsort(descending=True, stable=True)
    probability = torch.softmax(logits[order], 0)
    here_on = probability.flip(0).cumsum(0).flip(0).clamp(max=1.0) ** draws
    after = torch.cat([here_on[1:], here_on.new_zeros(1)])
    return (worth[order] * (here_on - after)).sum()


def all_actions(
    logits: Float[Tensor, " options"], worth: Float[Tensor, " options"], draws: int, shared: float, power: float
) -> Float[Tensor, ""]:
    """The loss of one decision: minus the expected share of the best worth that the best of `draws` draws has.

    Worths are at least 0, and one is above. `shared` times the cross-entropy with the options' shares of all worth is
    added, which has a gradient even where the policy is sure and wrong. The loss weighs by the best worth to the given
    power.
    """
    most = worth.max()
    target = worth / worth.sum()
    nats = -(target * torch.log_softmax(logits, 0)).sum()
    return (shared * nats - best_of_draws(logits, worth / most, draws)) * most**power
