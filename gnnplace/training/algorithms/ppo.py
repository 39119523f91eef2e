"""Proximal policy optimisation (Schulman et al. 2017): the clipped surrogate, and a critic's loss."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gnnplace.config.algorithms import PpoConfig
from gnnplace.policies.tape import Decisions
from gnnplace.training.algorithms.loss import NO_BONUS, EntropyBonus, mean_gain
from gnnplace.training.credit import Credit
from gnnplace.training.rollout import Scored


def ppo(
    scored: Scored,
    before: Float[Tensor, "samples decisions"],
    credit: Credit,
    config: PpoConfig,
    bonus: EntropyBonus = NO_BONUS,
    number: int | None = None,
) -> Float[Tensor, ""]:
    """Minus the mean of `min(r A, clip(r, 1 - clip, 1 + clip) A)` and of the entropy (eqs. 7 and 9), plus the critic's squared error.

    `before` are the log-probabilities of the decisions when they were sampled. The ratio r is of each decision, with its step's advantage,
    summed over a step's decisions; or of all of a step's decisions together. `number` as for `reinforce`.
    """
    now = scored.tape.by_decision(Decisions.log_probability)
    sizes = scored.tape.decisions_by_step()
    advantage = credit.advantage.detach().to(now.dtype)
    steps = zip((now - before.detach()).split(sizes, dim=1), advantage, strict=True)
    gain = torch.stack([_surrogate(change, of_step, config) for change, of_step in steps]) + bonus.of(scored.tape)
    loss = -mean_gain(gain, credit.counts, number)
    if scored.values is not None:
        error = scored.values - credit.returns.to(scored.values.dtype)
        loss = loss + config.value * mean_gain(error.square(), credit.counts, number)
    return loss


def _surrogate(
    change: Float[Tensor, "samples decisions"], advantage: Float[Tensor, " samples"], config: PpoConfig
) -> Float[Tensor, " samples"]:
    """The clipped surrogate of one step, from the change of its decisions' log-probabilities."""
    ratio = (change.sum(1, keepdim=True) if config.ratio == "sample" else change).exp()
    kept = ratio.clamp(1 - config.clip, 1 + config.clip)
    return torch.minimum(ratio * advantage[:, None], kept * advantage[:, None]).sum(1)
