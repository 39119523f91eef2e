"""The losses of the learning algorithms: REINFORCE (Williams 1992), and PPO (Schulman et al. 2017) with a critic.

Both are sums over steps and means over the samples that count, weighed by problem.

With m groupings and k placements of each, the log-probability of sample j is that of grouping j // k plus that of its
placement (the tape repeats the former). So a grouping's gradient is that of its log-probability times the mean
advantage of its k placements: the paper's two estimators in one loss (Mirhoseini et al., ICLR 2018, eqs. 4 and 6).
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
    """The factor of a problem's loss: under "mean" 1 over its decisions."""
    return 1.0 if decisions == "sum" else 1 / max(1, number)


def reinforce(
    scored: Scored, credit: Credit, bonus: EntropyBonus = NO_BONUS, number: int | None = None
) -> Float[Tensor, ""]:
    """`-mean(advantage * log_probability + bonus)`: a sum over decisions and steps, a mean over counted samples.

    The loss, and its gradient, are 0 where no sample counts. The optimiser must not step then: Adam's momentum would
    move the weights. `number` is how many samples count in all processes, where there are several.
    """
    log_probability = scored.tape.by_step(Decisions.log_probability)
    gain = credit.advantage.detach().to(log_probability.dtype) * log_probability + bonus.of(scored.tape)
    return -mean_gain(gain, credit.counts, number)


def ppo(
    scored: Scored,
    before: Float[Tensor, "samples decisions"],
    credit: Credit,
    config: PpoConfig,
    bonus: EntropyBonus = NO_BONUS,
    number: int | None = None,
) -> Float[Tensor, ""]:
    """Minus the mean of `min(r A, clip(r, 1 - clip, 1 + clip) A)` and of the entropy (eqs. 7 and 9), plus value loss.

    The value loss is the critic's squared error.

    `before` are the log-probabilities of the decisions when they were sampled. The ratio r is of each decision, with
    its step's advantage, summed over a step's decisions; or of all of a step's decisions together. `number` as for
    `reinforce`.
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
