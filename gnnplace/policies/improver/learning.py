"""The phase that the improver brings: it learns what every move of a pool gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from gnnplace.policies.improver.all_actions import all_actions
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
        """Takes the range of features from moves of the problems, unless the scorer has one."""
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
