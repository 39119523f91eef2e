"""The policy gradient (REINFORCE) as a loss.

With m groupings and k placements of each, sample j carries the log-probability of grouping j // k beside that of its
own placement (the tape repeats it), so the gradient of a grouping is that of its log-probability times the mean
advantage of its k placements: the paper's two estimators in one loss (Mirhoseini et al., ICLR 2018, eqs. 4 and 6).
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def reinforce_loss(
    log_probability: Float[Tensor, " samples"],
    entropy: Float[Tensor, " samples"],
    advantage: Float[Tensor, " samples"],
    counts: Bool[Tensor, " samples"],
    entropy_coefficient: float = 0.0,
) -> Float[Tensor, ""] | None:
    """`-mean(advantage * log_probability) - entropy_coefficient * mean(entropy)` over the samples that count.

    None where no sample counts: the learner must then skip its optimiser's step altogether, because Adam's momentum
    would move the weights even with a gradient of zero.
    """
    if not counts.any():
        return None
    gain = advantage.detach() * log_probability + entropy_coefficient * entropy
    return -gain[counts].mean()
