"""Deep Speech 2 (Amodei et al. 2016): convolutions over a spectrogram, then bidirectional GRUs, unrolled cell by cell.

Two convolutions of 32 channels and five layers of 800 units a direction, the two directions added up; batch norm behind the convolutions
and, over the whole sequence, on what each layer takes from the layer below. The loss is a cross entropy of every frame (as with labels
of a forced alignment), not CTC: no cost rule knows what CTC's recursion over the labels takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.gru import advance
from gnnplace.frontends.torch.scopes import time_step

CLASSES = 29


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    frequencies: int = 161
    channels: int = 32
    units: int = 800
    layers: int = 5


FULL = Sizes()


class Convolution(nn.Sequential):
    """Over frequency and time, `[batch channels frequencies steps]`, normalised and clipped to 0..20."""

    def __init__(self, before: int, after: int, window: tuple[int, int], stride: tuple[int, int]) -> None:
        padding = (window[0] // 2, window[1] // 2)
        super().__init__(nn.Conv2d(before, after, window, stride, padding, bias=False), nn.BatchNorm2d(after), nn.Hardtanh(0.0, 20.0))


class Direction(nn.Module):
    """A GRU over what a sequence `[steps batch inputs]` gives to its gates, forwards or backwards in time."""

    def __init__(self, inputs: int, units: int, backwards: bool) -> None:
        super().__init__()
        self.backwards = backwards
        self.input = nn.Linear(inputs, 3 * units, bias=False)
        self.norm = nn.BatchNorm1d(3 * units)
        self.hidden = nn.Linear(units, 3 * units)

    def forward(self, sequence: Tensor) -> list[Tensor]:
        gates = self.norm(self.input(sequence.flatten(0, 1))).unflatten(0, sequence.shape[:2]).unbind()
        state = sequence.new_zeros(sequence.shape[1], self.hidden.in_features)
        states: dict[int, Tensor] = {}
        for time in reversed(range(len(gates))) if self.backwards else range(len(gates)):
            with time_step(time):
                states[time] = state = advance(gates[time], self.hidden(state), state)
        return [states[time] for time in range(len(gates))]


class Layer(nn.Module):
    """Both directions `[steps batch inputs]`, added up to `[steps batch units]`."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.onwards, self.back = Direction(inputs, units, False), Direction(inputs, units, True)

    def forward(self, sequence: Tensor) -> Tensor:
        return torch.stack(self.onwards(sequence)) + torch.stack(self.back(sequence))


class DeepSpeech2(nn.Module):
    """Spectrograms `[batch 1 frequencies frames]` to logits of each step `[steps batch classes]`, two frames a step."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        channels, units = sizes.channels, sizes.units
        self.convolutions = nn.Sequential(Convolution(1, channels, (41, 11), (2, 2)), Convolution(channels, channels, (21, 11), (2, 1)))
        inputs = channels * (1 + (sizes.frequencies - 1) // 4)
        self.recurrent = nn.Sequential(*(Layer(inputs if layer == 0 else units, units) for layer in range(sizes.layers)))
        self.head = nn.Linear(units, CLASSES)

    def forward(self, spectrogram: Tensor) -> Tensor:
        sequence = self.convolutions(spectrogram).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.recurrent(sequence))


def framewise_loss(module: nn.Module, spectrogram: Tensor, labels: Tensor) -> Tensor:
    """`labels` is `[steps batch]`."""
    return functional.cross_entropy(module(spectrogram).flatten(0, 1), labels.flatten())
