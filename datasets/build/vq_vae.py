"""VQ-VAE (van den Oord, Vinyals & Kavukcuoglu 2017, section 4.1): images of 128 x 128 to a grid of 32 x 32 codes and back.

Two convolutions of stride 2 and two residual blocks of 256 units, the nearest of 512 codes for each position, two residual blocks and two
transposed convolutions; batch 128, Adam, commitment 0.25. The paper doesn't give the width of a code: 64 is the published programme's.
4,811,843 parameters, counted by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

COMMITMENT = 0.25


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    units: int = 256
    codes: int = 512
    code_width: int = 64
    blocks: int = 2


FULL = Sizes()


class Residual(nn.Module):
    """ReLU, 3 x 3 convolution, ReLU, 1 x 1 convolution, added to their input."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(units, units, 3, padding=1), nn.Conv2d(units, units, 1)

    def forward(self, image: Tensor) -> Tensor:
        return image + self.conv_2(torch.relu(self.conv_1(torch.relu(image))))


class Codebook(nn.Module):
    """Vectors `[vectors width]` to the nearest code of each."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.codes = nn.Embedding(sizes.codes, sizes.code_width)

    def forward(self, vectors: Tensor) -> Tensor:
        with torch.no_grad():
            products = torch.mm(vectors, self.codes.weight.t())
            nearest = (self.codes.weight.square().sum(dim=1) - 2 * products).argmin(dim=1)  # a vector's own length is the same for all
        return self.codes(nearest)


class VQVAE(nn.Module):
    """Images `[batch 3 height width]` to the loss: of the image built from codes, of the codes, and of the encoder's distance to them."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        units, width = sizes.units, sizes.code_width
        encoder = [
            nn.Sequential(nn.Conv2d(3, units, 4, stride=2, padding=1), nn.ReLU()), nn.Conv2d(units, units, 4, stride=2, padding=1),
            *(Residual(units) for _ in range(sizes.blocks)), nn.Sequential(nn.ReLU(), nn.Conv2d(units, width, 1)),
        ]  # fmt: skip
        decoder = [
            nn.Conv2d(width, units, 1), *(Residual(units) for _ in range(sizes.blocks)),
            nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(units, units, 4, stride=2, padding=1)),
            nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(units, 3, 4, stride=2, padding=1)),
        ]  # fmt: skip
        self.layers, self.encoding = nn.ModuleList([*encoder, Codebook(sizes), *decoder]), len(encoder)

    def forward(self, image: Tensor) -> Tensor:
        hidden = image
        for layer in self.layers[: self.encoding]:
            hidden = layer(hidden)
        encoded = hidden.permute(0, 2, 3, 1)
        codes = self.layers[self.encoding](encoded.flatten(0, 2)).view_as(encoded)
        passed = encoded + (codes - encoded).detach()  # the encoder gets the gradient of the codes
        hidden = passed.permute(0, 3, 1, 2)
        for layer in self.layers[self.encoding + 1 :]:
            hidden = layer(hidden)
        distances = functional.mse_loss(codes, encoded.detach()) + COMMITMENT * functional.mse_loss(encoded, codes.detach())
        return functional.mse_loss(hidden, image) + distances
