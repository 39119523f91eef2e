"""Deep Speech 2 (Amodei et al. 2016): convolutions over a spectrogram, then bidirectional GRUs, unrolled cell by cell.

Two convolutions of 32 channels and five layers of 800 units a direction, the two directions added up; batch norm behind the convolutions
and, over the whole sequence, on what each layer takes from the layer below. The loss is a cross entropy of every frame (as with labels
of a forced alignment), not CTC: no cost rule knows what CTC's recursion over the labels takes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.gru import advance
from gnnplace.frontends.torch_scopes import time_step

FREQUENCIES, CHANNELS, UNITS, LAYERS, CLASSES = 161, 32, 800, 5, 29


class Convolution(nn.Sequential):
    """Over frequency and time, `[batch channels frequencies steps]`, normalised and clipped to 0..20."""

    def __init__(self, channels: int, window: tuple[int, int], stride: tuple[int, int]) -> None:
        padding = (window[0] // 2, window[1] // 2)
        super().__init__(
            nn.Conv2d(channels, CHANNELS, window, stride, padding, bias=False), nn.BatchNorm2d(CHANNELS), nn.Hardtanh(0.0, 20.0)
        )


class Direction(nn.Module):
    """A GRU over what a sequence `[steps batch inputs]` gives to its gates, forwards or backwards in time."""

    def __init__(self, inputs: int, backwards: bool) -> None:
        super().__init__()
        self.backwards = backwards
        self.input = nn.Linear(inputs, 3 * UNITS, bias=False)
        self.norm = nn.BatchNorm1d(3 * UNITS)
        self.hidden = nn.Linear(UNITS, 3 * UNITS)

    def forward(self, sequence: Tensor) -> list[Tensor]:
        gates = self.norm(self.input(sequence.flatten(0, 1))).unflatten(0, sequence.shape[:2]).unbind()
        state = sequence.new_zeros(sequence.shape[1], UNITS)
        states: dict[int, Tensor] = {}
        for time in reversed(range(len(gates))) if self.backwards else range(len(gates)):
            with time_step(time):
                states[time] = state = advance(gates[time], self.hidden(state), state)
        return [states[time] for time in range(len(gates))]


class Layer(nn.Module):
    """Both directions `[steps batch inputs]`, added up to `[steps batch units]`."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.onwards, self.back = Direction(inputs, False), Direction(inputs, True)

    def forward(self, sequence: Tensor) -> Tensor:
        return torch.stack(self.onwards(sequence)) + torch.stack(self.back(sequence))


class DeepSpeech2(nn.Module):
    """Spectrograms `[batch 1 frequencies frames]` to logits of each step `[steps batch classes]`, two frames a step."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(Convolution(1, (41, 11), (2, 2)), Convolution(CHANNELS, (21, 11), (2, 1)))
        inputs = CHANNELS * (1 + (FREQUENCIES - 1) // 4)
        self.recurrent = nn.Sequential(*(Layer(inputs if layer == 0 else UNITS) for layer in range(LAYERS)))
        self.head = nn.Linear(UNITS, CLASSES)

    def forward(self, spectrogram: Tensor) -> Tensor:
        sequence = self.convolutions(spectrogram).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.recurrent(sequence))


def framewise_loss(module: nn.Module, spectrogram: Tensor, labels: Tensor) -> Tensor:
    """`labels` is `[steps batch]`."""
    return functional.cross_entropy(module(spectrogram).flatten(0, 1), labels.flatten())
