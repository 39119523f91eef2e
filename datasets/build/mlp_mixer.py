"""MLP-Mixer B/16 (Tolstikhin et al. 2021, table 1) on 224 x 224 images: 12 layers of width 768, 59,880,472 parameters.

A layer mixes the 196 patches of an image channel by channel, with 384 hidden units, then the channels patch by patch, with 3,072; each is a
residual branch after layer norm, kept at random (stochastic depth that grows along the layers to 0.1, as published for ImageNet).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from datasets.build.stochastic_depth import StochasticDepth

SIZE, PATCH, LAYERS, WIDTH, TOKEN_UNITS, CHANNEL_UNITS, LEFT_OUT = 224, 16, 12, 768, 384, 3072, 0.1


class Perceptron(nn.Module):
    """Two linear layers with GELU between them, over the last dimension."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.widen, self.narrow = nn.Linear(width, units), nn.Linear(units, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.narrow(functional.gelu(self.widen(hidden)))


class Layer(nn.Module):
    """`[batch patches width]`: patches are mixed, then channels."""

    def __init__(self, patches: int, kept: float) -> None:
        super().__init__()
        self.norm_1, self.tokens = nn.LayerNorm(WIDTH), Perceptron(patches, TOKEN_UNITS)
        self.norm_2, self.channels = nn.LayerNorm(WIDTH), Perceptron(WIDTH, CHANNEL_UNITS)
        self.residual = StochasticDepth(kept)

    def forward(self, hidden: Tensor) -> Tensor:
        mixed = self.tokens(self.norm_1(hidden).transpose(1, 2)).transpose(1, 2)
        hidden = hidden + self.residual(mixed)
        return hidden + self.residual(self.channels(self.norm_2(hidden)))


class MLPMixer(nn.Module):
    """Images `[batch 3 224 224]` to logits `[batch classes]`."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.layers = nn.ModuleList(Layer((SIZE // PATCH) ** 2, 1 - LEFT_OUT * i / (LAYERS - 1)) for i in range(LAYERS))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.patches(image).flatten(2).transpose(1, 2)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.out(self.norm(hidden).mean(dim=1))
