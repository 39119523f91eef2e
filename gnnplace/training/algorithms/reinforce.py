"""The policy gradient (REINFORCE, Williams 1992) as a loss.

With m groupings and k placements of each, sample j carries the log-probability of grouping j // k beside that of its
own placement (the tape repeats it), so the gradient of a grouping is that of its log-probability times the mean
advantage of its k placements: the paper's two estimators in one loss (Mirhoseini et al., ICLR 2018, eqs. 4 and 6).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from gnnplace.policies.tape import Decisions
from gnnplace.training.algorithms.loss import NO_BONUS, EntropyBonus, mean_gain
from gnnplace.training.credit import Credit
from gnnplace.training.rollout import Scored


def reinforce(scored: Scored, credit: Credit, bonus: EntropyBonus = NO_BONUS, number: int | None = None) -> Float[Tensor, ""]:
    """`-mean(advantage * log_probability + entropy bonus)`: sums over decisions and steps, a mean over samples that count.

    The loss, and its gradient, are 0 where no sample counts. The optimiser must not step then: Adam's momentum would move the weights.
    `number` is how many samples count in all processes, where there are several.
    """
    log_probability = scored.tape.by_step(Decisions.log_probability)
    gain = credit.advantage.detach().to(log_probability.dtype) * log_probability + bonus.of(scored.tape)
    return -mean_gain(gain, credit.counts, number)
