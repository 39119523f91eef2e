"""The U-Net of latent diffusion (Rombach et al. 2022, section 3.3 and appendix E), at the size released as Stable Diffusion 1.

Latents of 64 x 64 x 4 (images of 512 x 512), resolutions of 320, 640, 1280 and 1280 channels with two residual blocks each (three on the
way up, each of which takes one activation of the way down). At all but the lowest resolution and in the middle a transformer layer
follows, whose cross attention, like the self-attention of 8 heads, sees the 77 tokens of a text of width 768. 859,520,964 parameters, as
released. The stages are numbered in the order in which they run: 12 down, 1 in the middle, 12 up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import join_heads, split_heads

BLOCKS, GROUPS, EPSILON = 2, 32, 1e-6


@dataclass(frozen=True)
class Sizes:
    """Of the model: channels of each resolution, the width of the text and the channels of a latent image."""

    channels: tuple[int, ...] = (320, 640, 1280, 1280)
    heads: int = 8
    context: int = 768
    latent: int = 4

    @property
    def time(self) -> int:
        """The width of what each residual block learns of the time."""
        return 4 * self.channels[0]


FULL = Sizes()


class Residual(nn.Module):
    """Two convolutions around the time, added to their input."""

    def __init__(self, before: int, after: int, time: int) -> None:
        super().__init__()
        self.norm_1, self.conv_1 = nn.GroupNorm(GROUPS, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(time, after)
        self.norm_2, self.conv_2 = nn.GroupNorm(GROUPS, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv_1(functional.silu(self.norm_1(image)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(image) + self.conv_2(functional.silu(self.norm_2(hidden)))


class Attention(nn.Module):
    """Attention of the positions of an image `[batch positions width]` to a context `[batch tokens context]`."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads, self.query = heads, nn.Linear(width, width, bias=False)
        self.key, self.value = nn.Linear(context, width, bias=False), nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Tensor, context: Tensor) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in (self.query(hidden), self.key(context), self.value(context)))
        return self.out(join_heads(functional.scaled_dot_product_attention(query, key, value)))


class FeedForward(nn.Module):
    """Four times as wide inside; one half gates the other by GELU (Shazeer 2020)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        inner, gate = self.up(hidden).chunk(2, dim=-1)
        return self.down(inner * functional.gelu(gate))


class Transformer(nn.Module):
    """A transformer layer over the positions of an image, between two products; added to its input."""

    def __init__(self, width: int, sizes: Sizes) -> None:
        super().__init__()
        self.norm, self.inward, self.outward = nn.GroupNorm(GROUPS, width, EPSILON), nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norm_1, self.own = nn.LayerNorm(width), Attention(width, width, sizes.heads)
        self.norm_2, self.cross = nn.LayerNorm(width), Attention(width, sizes.context, sizes.heads)
        self.norm_3, self.mlp = nn.LayerNorm(width), FeedForward(width)

    def forward(self, image: Tensor, context: Tensor) -> Tensor:
        hidden = self.inward(self.norm(image)).flatten(2).transpose(1, 2)
        seen = self.norm_1(hidden)
        hidden = hidden + self.own(seen, seen)
        hidden = hidden + self.cross(self.norm_2(hidden), context)
        hidden = hidden + self.mlp(self.norm_3(hidden))
        return image + self.outward(hidden.transpose(1, 2).reshape(image.shape))


class Grow(nn.Sequential):
    """Twice as many rows and columns."""

    def __init__(self, channels: int) -> None:
        super().__init__(nn.Upsample(scale_factor=2.0), nn.Conv2d(channels, channels, 3, padding=1))


class Stage(nn.Module):
    """Parts in a row: residual blocks, which see the time, transformers, which see the context, and others."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, image: Tensor, time: Tensor, context: Tensor) -> Tensor:
        for part in self.parts:
            match part:
                case Residual():
                    image = part(image, time)
                case Transformer():
                    image = part(image, context)
                case _:
                    image = part(image)
        return image


class LatentUNet(nn.Module):
    """Noisy latents `[batch 4 height width]`, the waves of their times `[batch 320]` and texts `[batch tokens context]` to the noise."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        first, last = sizes.channels[0], sizes.channels[-1]
        self.time = nn.Sequential(nn.Linear(first, sizes.time), nn.SiLU(), nn.Linear(sizes.time, sizes.time))
        down, kept = _down(sizes)
        middle = Stage(Residual(last, last, sizes.time), Transformer(last, sizes), Residual(last, last, sizes.time))
        self.stages, self.skips = nn.ModuleList([*down, middle, *_up(sizes, kept)]), len(down)
        self.norm, self.out = nn.GroupNorm(GROUPS, first), nn.Conv2d(first, sizes.latent, 3, padding=1)

    def forward(self, image: Tensor, waves: Tensor, context: Tensor) -> Tensor:
        time, kept = self.time(waves), []
        for number, stage in enumerate(self.stages):
            image = stage(torch.cat([image, kept.pop()], dim=1) if number > self.skips else image, time, context)
            if number < self.skips:
                kept.append(image)
        return self.out(functional.silu(self.norm(image)))


def _block(before: int, level: int, sizes: Sizes) -> list[nn.Module]:
    """A residual block, with a transformer behind it at all but the lowest resolution."""
    after = sizes.channels[level]
    residual = Residual(before, after, sizes.time)
    return [residual] if level == len(sizes.channels) - 1 else [residual, Transformer(after, sizes)]


def _down(sizes: Sizes) -> tuple[list[Stage], list[int]]:
    """The stages of the way down, and the channels that each of them leaves for the way up."""
    stages, kept = [Stage(nn.Conv2d(sizes.latent, sizes.channels[0], 3, padding=1))], [sizes.channels[0]]
    for level, after in enumerate(sizes.channels):
        if level:
            stages.append(Stage(nn.Conv2d(kept[-1], kept[-1], 3, stride=2, padding=1)))
            kept.append(kept[-1])
        for _ in range(BLOCKS):
            stages.append(Stage(*_block(kept[-1], level, sizes)))
            kept.append(after)
    return stages, kept


def _up(sizes: Sizes, kept: list[int]) -> list[Stage]:
    """The stages of the way up; each takes the last channels that are left of the way down."""
    stages, before, skipped = [], sizes.channels[-1], list(kept)
    for level in reversed(range(len(sizes.channels))):
        after = sizes.channels[level]
        for block in range(BLOCKS + 1):
            grow = [Grow(after)] if level and block == BLOCKS else []
            stages.append(Stage(*_block(before + skipped.pop(), level, sizes), *grow))
            before = after
    return stages
