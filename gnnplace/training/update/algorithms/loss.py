"""The losses of the learning algorithms: REINFORCE (Williams 1992), and PPO (Schulman et al. 2017) with a critic.

Both are sums over steps and means over the samples that count, weighed by problem.

With m groupings and k placements of each, the log-probability of sample j is that of grouping j // k plus that of its
placement (the tape repeats the former). So a grouping's gradient is that of its log-probability times the mean
advantage of its k placements, as shared decisions have it: the paper's two estimators in one loss (Mirhoseini et al.,
ICLR 2018, eqs. 4 and 6).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnnplace.config.algorithms import Decisions as Weighed
from gnnplace.config.algorithms import PpoConfig
from gnnplace.policies.tape import Decisions, Tape
from gnnplace.training.update.credit import Credit
from gnnplace.training.update.rollout import Scored


class EntropyBonus(NamedTuple):
    """The reward of a nat of entropy, and the decisions that get it (all if none is named)."""

    coefficient: float = 0.0
    names: tuple[str, ...] = ()

    def of(self, tape: Tape) -> Float[Tensor, "steps samples"] | float:
        """The bonus of each step."""
        return self.coefficient * tape.by_step(Decisions.entropy, self.names) if self.coefficient else 0.0


NO_BONUS = EntropyBonus()


def mean_gain(
    gain: Float[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"], number: int | None = None
) -> Float[Tensor, ""]:
    """The sum over steps of the mean gain of the samples that count; 0 if none counts.

    `number` is of the samples of all processes.
    """
    return (gain * counts).sum() / max(1, int(counts.any(0).sum()) if number is None else number)


def weight(decisions: Weighed, number: int) -> float:
    """The factor of the loss of a problem's decisions: under "mean" 1 over their number."""
    return 1.0 if decisions == "sum" else 1 / max(1, number)


def reinforce(
    scored: Scored, credit: Credit, bonus: EntropyBonus = NO_BONUS, number: int | None = None
) -> Float[Tensor, ""]:
    """`-mean(advantage * log_probability + bonus)`: a sum over decisions and steps, a mean over counted samples.

    The loss, and its gradient, are 0 where no sample counts. The optimiser must not step then: Adam's momentum would
    move the weights. `number` is how many samples count in all processes, where there are several.
    """
    alone, shared = (scored.tape.by_step(Decisions.log_probability, shared=each) for each in (False, True))
    gain = _like(alone, credit.advantage) * alone + _like(shared, credit.shared) * shared + bonus.of(scored.tape)
    return -mean_gain(gain, credit.counts, number)


def _like(values: Tensor, advantage: Tensor) -> Tensor:
    return advantage.detach().to(values.dtype)


def ppo(
    scored: Scored,
    before: Float[Tensor, "samples decisions"],
    credit: Credit,
    config: PpoConfig,
    bonus: EntropyBonus = NO_BONUS,
    number: int | None = None,
) -> Float[Tensor, ""]:
    """Minus the mean of `min(r A, clip(r, 1 - clip, 1 + clip) A)` and of the entropy (eqs. 7 and 9).

    `before` are the log-probabilities of the decisions when they were sampled. The ratio r is of each decision, with
    its step's advantage, summed over a step's decisions; or of all of a step's decisions together, those that samples
    share apart. `number` as for `reinforce`.
    """
    change = scored.tape.by_decision(Decisions.log_probability) - before.detach()
    shared = scored.tape.shared_by_step()
    changes = change.split([len(each) for each in shared], dim=1)
    gain = torch.stack(
        [
            _surrogate(of_step[:, ~each], advantage, config) + _surrogate(of_step[:, each], of_shared, config)
            for of_step, each, advantage, of_shared in zip(
                changes, shared, _like(change, credit.advantage), _like(change, credit.shared), strict=True
            )
        ]
    ) + bonus.of(scored.tape)
    return -mean_gain(gain, credit.counts, number)


def value_loss(scored: Scored, credit: Credit, number: int | None = None) -> Float[Tensor, ""] | float:
    """The critic's mean squared error over the samples that count, a sum over steps; 0 without a critic."""
    if scored.values is None:
        return 0.0
    error = scored.values - credit.returns.to(scored.values.dtype)
    return mean_gain(error.square(), credit.counts, number)


def _surrogate(
    change: Float[Tensor, "samples decisions"], advantage: Float[Tensor, " samples"], config: PpoConfig
) -> Float[Tensor, " samples"]:
    """The clipped surrogate of decisions of one step, from the change of their log-probabilities; 0 of none."""
    if not change.shape[1]:
        return torch.zeros_like(advantage)
    ratio = (change.sum(1, keepdim=True) if config.ratio == "sample" else change).exp()
    kept = ratio.clamp(1 - config.clip, 1 + config.clip)
    return torch.minimum(ratio * advantage[:, None], kept * advantage[:, None]).sum(1)
