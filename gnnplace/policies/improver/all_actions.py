"""The gradient over all actions: what every option of a decision is worth is known, so nothing has to be sampled.

Where all options can be evaluated, the policy gradient needs no estimate: the expected worth of a draw is a sum over
options (Allen et al., Mean actor critic, 2017; Ciosek and Whiteson, Expected policy gradients, AAAI 2018). A search
tries several moves and keeps the best, so the objective here is the expected *best of several draws*, which rewards a
policy for moves that are sometimes very good.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


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
    """The loss of one decision: minus the share of the best option's worth that the best of `draws` draws is expected
    to have.

    Worths are at least 0, and one is above. `shared` times the cross-entropy with the options' shares of all worth is
    added, which has a gradient even where the policy is sure and wrong. The loss weighs by the best worth to the given
    power.
    """
    most = worth.max()
    target = worth / worth.sum()
    nats = -(target * torch.log_softmax(logits, 0)).sum()
    return (shared * nats - best_of_draws(logits, worth / most, draws)) * most**power
