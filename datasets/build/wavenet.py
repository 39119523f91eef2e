"""WaveNet (van den Oord et al. 2016): gated dilated causal convolutions over raw audio, which predict each next sample.

Stacks of nine layers with dilations 1, 2, ... 256; "2x18" is two such stacks, 18 layers in all, and "4x36" four and 36, as in GO (Zhou et
al. 2020). The paper has no widths: these are those of the baseline of Engel et al. 2017, 512 channels, 256 for the skips, filters of three
samples, segments of 6,144 samples, 256 classes by the mu-law. A layer is `tanh(w x) * sigmoid(v x)`; a 1 x 1 convolution of it is added to
the layer's input for the next layer, another to the sum of the skips; of the last layer only the skip is used, so it has no other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 256


@dataclass(frozen=True)
class Sizes:
    """Of the model; `layers` counts those of all stacks."""

    stacks: int
    layers: int
    channels: int = 512
    skip_channels: int = 256
    window: int = 3

    @property
    def dilations(self) -> tuple[int, ...]:
        """Of each layer, along the depth."""
        return tuple(2**i for i in range(self.layers // self.stacks)) * self.stacks


SMALL, LARGE = Sizes(stacks=2, layers=18), Sizes(stacks=4, layers=36)


class Causal(nn.Conv1d):
    """A convolution over `[batch channels samples]` that sees no later sample than the one it computes."""

    def forward(self, audio: Tensor) -> Tensor:
        past = self.dilation[0] * (self.kernel_size[0] - 1)
        return super().forward(functional.pad(audio, (past, 0)))


class Layer(nn.Module):
    """`[batch channels samples]` to the input of the next layer and to what is added to the skips."""

    def __init__(self, sizes: Sizes, dilation: int, last: bool) -> None:
        super().__init__()
        self.gates = Causal(sizes.channels, 2 * sizes.channels, sizes.window, dilation=dilation)
        self.skip = nn.Conv1d(sizes.channels, sizes.skip_channels, 1)
        self.onward = None if last else nn.Conv1d(sizes.channels, sizes.channels, 1)

    def forward(self, audio: Tensor) -> tuple[Tensor, Tensor]:
        filtered, gate = self.gates(audio).chunk(2, dim=1)
        hidden = torch.tanh(filtered) * torch.sigmoid(gate)
        return audio if self.onward is None else audio + self.onward(hidden), self.skip(hidden)


class WaveNet(nn.Module):
    """Audio `[batch 1 samples]` to the logits of the sample after each, `[batch*samples classes]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.first, last = Causal(1, sizes.channels, sizes.window), sizes.layers - 1
        self.layers = nn.ModuleList(Layer(sizes, dilation, i == last) for i, dilation in enumerate(sizes.dilations))
        self.mix = nn.Conv1d(sizes.skip_channels, sizes.skip_channels, 1)
        self.out = nn.Conv1d(sizes.skip_channels, CLASSES, 1)

    def forward(self, audio: Tensor) -> Tensor:
        audio = self.first(audio)
        audio, skipped = self.layers[0](audio)
        for layer in self.layers[1:]:
            audio, skip = layer(audio)
            skipped = skipped + skip
        logits = self.out(torch.relu(self.mix(torch.relu(skipped))))
        return logits.transpose(1, 2).flatten(0, 1)
