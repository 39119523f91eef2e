"""The U-Net of a diffusion model (Ho et al. 2020) on 64 x 64 images: residual blocks down and up, attention at 16 x 16.

Three resolutions of 128, 256 and 512 channels with two residual blocks each (three on the way up, each of which takes one activation of
the way down), group norm and SiLU before each convolution, the time of the diffusion added in each block. Dropout 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCKS, IMAGE_CHANNELS, DROPOUT = 2, 3, 0.1


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    channels: tuple[int, ...] = (128, 256, 512)
    time_width: int = 512
    groups: int = 32


FULL = Sizes()


class Residual(nn.Module):
    """Two convolutions around the time, added to their input."""

    def __init__(self, before: int, after: int, sizes: Sizes) -> None:
        super().__init__()
        self.norm_1, self.conv_1 = nn.GroupNorm(sizes.groups, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(sizes.time_width, after)
        self.norm_2, self.conv_2 = nn.GroupNorm(sizes.groups, after), nn.Conv2d(after, after, 3, padding=1)
        self.dropout = nn.Dropout(DROPOUT)
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv_1(functional.silu(self.norm_1(image)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        hidden = self.conv_2(self.dropout(functional.silu(self.norm_2(hidden))))
        return self.skip(image) + hidden


class Attention(nn.Module):
    """One head of attention among all positions, added to its input."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, image: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(image)).flatten(2).chunk(3, dim=1)  # [batch channels positions]
        weights = (torch.bmm(query.transpose(1, 2), key) * query.shape[1] ** -0.5).softmax(dim=2)
        return image + self.out(torch.bmm(value, weights.transpose(1, 2)).view_as(image))


class Block(nn.Module):
    """A residual block, with attention at the lowest resolution."""

    def __init__(self, before: int, after: int, sizes: Sizes) -> None:
        super().__init__()
        self.residual = Residual(before, after, sizes)
        self.attention = Attention(after, sizes.groups) if after == sizes.channels[-1] else nn.Identity()

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        return self.attention(self.residual(image, time))


class Down(nn.Module):
    """The blocks of one resolution on the way down, and a convolution of stride 2 to the next; returns every activation."""

    def __init__(self, before: int, after: int, last: bool, sizes: Sizes) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(before if block == 0 else after, after, sizes) for block in range(BLOCKS))
        self.shrink = None if last else nn.Conv2d(after, after, 3, stride=2, padding=1)

    def forward(self, image: Tensor, time: Tensor) -> list[Tensor]:
        kept = []
        for block in self.blocks:
            image = block(image, time)
            kept.append(image)
        return kept if self.shrink is None else [*kept, self.shrink(image)]


class Up(nn.Module):
    """The blocks of one resolution on the way up; each takes the last activation that the way down has left."""

    def __init__(self, before: int, after: int, skipped: list[int], last: bool, sizes: Sizes) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            Block((before if block == 0 else after) + channels, after, sizes) for block, channels in enumerate(reversed(skipped))
        )
        self.grow = None if last else nn.Conv2d(after, after, 3, padding=1)

    def forward(self, image: Tensor, time: Tensor, kept: list[Tensor]) -> Tensor:
        for block, skipped in zip(self.blocks, reversed(kept), strict=True):
            image = block(torch.cat([image, skipped], dim=1), time)
        return image if self.grow is None else self.grow(functional.interpolate(image, scale_factor=2.0))


class UNet(nn.Module):
    """Noisy images `[batch 3 height width]` and the waves of their times `[batch 128]` to the noise in the images."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        channels, time_width = sizes.channels, sizes.time_width
        first, last = channels[0], channels[-1]
        widths = (first, *channels)
        self.time = nn.Sequential(nn.Linear(first, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.stem = nn.Conv2d(IMAGE_CHANNELS, first, 3, padding=1)
        self.down = nn.ModuleList(Down(widths[i], widths[i + 1], i == len(channels) - 1, sizes) for i in range(len(channels)))
        self.middle_1, self.middle_2 = Block(last, last, sizes), Residual(last, last, sizes)
        self.up = nn.ModuleList(
            Up(channels[min(i + 1, len(channels) - 1)], channels[i], [widths[i], *[channels[i]] * BLOCKS], i == 0, sizes)
            for i in reversed(range(len(channels)))
        )
        self.norm, self.out = nn.GroupNorm(sizes.groups, first), nn.Conv2d(first, IMAGE_CHANNELS, 3, padding=1)

    def forward(self, image: Tensor, waves: Tensor) -> Tensor:
        time = self.time(waves)
        kept = [self.stem(image)]
        for stage in self.down:
            kept += stage(kept[-1], time)
        image = self.middle_2(self.middle_1(kept[-1], time), time)
        for stage in self.up:
            image, kept = stage(image, time, kept[-BLOCKS - 1 :]), kept[: -BLOCKS - 1]
        return self.out(functional.silu(self.norm(image)))
