"""Log-probabilities worked out from the logits of networks, without a tape's arithmetic, and weights unlike those that sampled."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnplace.policies.placing.placer import Encoded, Seq2Seq
from gnnplace.policies.tape import Decisions


def perturb(policy: nn.Module) -> None:
    """Move every weight a little."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


def chosen_by_hand(logits: Tensor, choice: Tensor) -> Tensor:
    """The log-probability of each row's choices: the exponential of the chosen logit over the sum of all exponentials."""
    exponentials = logits.double().exp()
    chosen = exponentials.gather(-1, choice.unsqueeze(-1)).squeeze(-1) / exponentials.sum(-1)
    return chosen.prod(-1).log().float()


def placed_by_hand(placer: Seq2Seq, encoded: Encoded, device: Decisions) -> Tensor:
    """The log-probability of each sample's devices: the decoder reads them step by step and its logits get the noise of sampling."""
    steps: list[Tensor] = []

    def decide(step: int, logits: Tensor) -> Tensor:
        steps.append(logits)
        return device.choice()[:, step]

    placer.write(encoded, len(device.choice()), decide)
    noise = device.noise()
    logits = torch.stack(steps, dim=1)
    return chosen_by_hand(logits if noise is None else logits + noise, device.choice())
