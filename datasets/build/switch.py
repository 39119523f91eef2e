"""The Switch Transformer (Fedus et al. 2022, sections 2.1 and 2.2): T5 with experts in every other feed-forward layer.

Every token goes to one of eight experts (`token_choice`), weighted by its share of the softmax over all; capacity factor 1.25. The base
size is T5's: 619,339,008 parameters, as released (switch-base-8). The loss that evens out the choices is left out.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from datasets.build import t5
from datasets.build.token_choice import ExpertLayer

EXPERTS, CAPACITY_FACTOR = 8, 1.25


class Expert(nn.Module):
    """Two products around a ReLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(t5.DROPOUT)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.down(self.dropout(functional.relu(self.up(tokens))))


class Experts(nn.Module):
    """Experts, normalised before and added to their input."""

    def __init__(self, sizes: t5.Sizes) -> None:
        super().__init__()
        self.norm, self.dropout = nn.RMSNorm(sizes.width, t5.EPSILON), nn.Dropout(t5.DROPOUT)
        experts = [Expert(sizes.width, sizes.inner) for _ in range(EXPERTS)]
        self.experts = ExpertLayer(sizes.width, experts, choices=1, factor=CAPACITY_FACTOR, among_chosen=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.dropout(self.experts(self.norm(hidden)))


class Switch(t5.T5):
    """Ids of the source and of the target so far to logits `[batch target vocabulary]`."""

    def __init__(self, sizes: t5.Sizes) -> None:
        super().__init__(sizes)
        for stack in (self.encoder, self.decoder):
            for layer in list(stack.layers.values())[1::2]:
                layer.mlp = Experts(sizes)
