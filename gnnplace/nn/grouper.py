"""The Grouper: a feed-forward network that scores every group for every op, ops independently of each other.

One hidden layer of 64 (ICLR 2018, section 3.1; facts: section 1.2). The paper names no activation: ReLU here, and
`linear` is the authors' public code, where the two layers make one linear map of rank 64. With as many options as
devices the same network is the paper's ablation without grouping.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.nn.glorot import glorot

Activation = Literal["relu", "linear"]


class Grouper(nn.Module):
    """Op embeddings -> logits of a softmax over `options`."""

    def __init__(self, width: int, options: int, *, hidden: int = 64, activation: Activation = "relu") -> None:
        super().__init__()
        self.options = options
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU() if activation == "relu" else nn.Identity(), nn.Linear(hidden, options)
        )
        glorot(self)

    def forward(self, embeddings: Float[Tensor, "ops width"]) -> Float[Tensor, "ops options"]:
        return self.layers(embeddings)
