"""DiT (Peebles & Xie 2023, "Scalable Diffusion Models with Transformers", section 3 and table 1), the diffusion transformer: XL/2.

A vision transformer on patches of 2 x 2 of a latent image, 28 layers of width 1152. The time of the diffusion and the class of the image
say in each layer how to scale and shift what enters attention and feed-forward, and how much of what comes out is added (adaLN-Zero).
For 256 x 256 images, whose latents are 32 x 32 x 4: 675 M parameters in the paper, 675,129,632 released, of which 294,912 are the
positions; these are not trained. The loss is that of the paper (section 3.1): the squared error of the noise, and for the variances the
divergence from the true step, which leaves the noise alone (in nats, the last step to the image like all others).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import SelfAttention

WAVES, EPSILON = 256, 1e-6


@dataclass(frozen=True)
class Sizes:
    """Of the model and of its latent images."""

    side: int = 32
    channels: int = 4
    patch: int = 2
    width: int = 1152
    heads: int = 16
    layers: int = 28
    classes: int = 1000


XL = Sizes()


class Modulated(nn.Module):
    """Layer norm without weights of its own, scaled and shifted as told: `[batch tokens width]`, `[batch width]` twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, EPSILON, elementwise_affine=False)

    def forward(self, hidden: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        return self.norm(hidden) * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    """Attention and feed-forward, each modulated before and weighted after by six vectors that are made of the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.condition = nn.Linear(width, 6 * width)
        self.norm_1, self.attention = Modulated(width), SelfAttention(width, heads, causal=False)
        self.norm_2, self.up, self.down = Modulated(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, condition: Tensor) -> Tensor:
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.condition(functional.silu(condition)).chunk(6, dim=1)
        hidden = hidden + gate_1[:, None] * self.attention(self.norm_1(hidden, shift_1, scale_1))
        inner = functional.gelu(self.up(self.norm_2(hidden, shift_2, scale_2)), approximate="tanh")
        return hidden + gate_2[:, None] * self.down(inner)


class Head(nn.Module):
    """Tokens `[batch tokens width]` to the noise and the variances of their patches `[batch tokens 2*patch]`."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.condition, self.norm, self.out = nn.Linear(width, 2 * width), Modulated(width), nn.Linear(width, 2 * patch)

    def forward(self, hidden: Tensor, condition: Tensor) -> Tensor:
        shift, scale = self.condition(functional.silu(condition)).chunk(2, dim=1)
        return self.out(self.norm(hidden, shift, scale))


class DiT(nn.Module):
    """Noisy latents `[batch channels side side]`, the waves of their times `[batch 256]` and classes `[batch]` (the last: none) to noise
    and variances `[batch 2*channels side side]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, patch = sizes.width, sizes.patch
        self.patches = nn.Conv2d(sizes.channels, width, patch, stride=patch)
        self.register_buffer("position", torch.zeros((sizes.side // patch) ** 2, width))
        self.time = nn.Sequential(nn.Linear(WAVES, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(sizes.classes + 1, width)
        self.layers = nn.ModuleList(Block(width, sizes.heads) for _ in range(sizes.layers))
        self.head = Head(width, patch**2 * sizes.channels)

    def forward(self, latents: Tensor, waves: Tensor, classes: Tensor) -> Tensor:
        patches = self.patches(latents)
        hidden = patches.flatten(2).transpose(1, 2) + self.position
        rows, columns = patches.shape[2:]
        condition = self.time(waves) + self.label(classes)
        for layer in self.layers:
            hidden = layer(hidden, condition)
        pieces = self.head(hidden, condition).view(len(latents), rows, columns, *self.patches.kernel_size, -1)
        return pieces.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def loss(module: nn.Module, latents: Tensor, waves: Tensor, classes: Tensor, noise: Tensor, steps: Tensor) -> Tensor:
    """`steps` `[3 batch]`: the least and the largest log variance of each sample's step, and how far an error of one in the noise
    moves the step's mean."""
    found, share = module(latents, waves, classes).chunk(2, dim=1)
    least, largest, moves = steps[:, :, None, None, None].unbind()
    log_variance = torch.lerp(least, largest, (share + 1) / 2)
    apart = (moves * (noise - found.detach())).square() * torch.exp(-log_variance)
    divergence = 0.5 * (log_variance - least + torch.exp(least - log_variance) + apart - 1)
    return functional.mse_loss(found, noise) + divergence.mean()
