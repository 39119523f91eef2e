"""Mamba-2 (Dao & Gu 2024, "Transformers are SSMs", sections 6 and 7), a language model of state-space layers.

A layer keeps for each of its heads a state of 64 x 128 numbers that decays and takes in something at every token. Within a chunk of 256
tokens what a token sees of another is a product, masked and decayed, as in attention; between chunks the states are handed on, all of them
at once by a product with the decays between every two chunks (listing 1). So nothing runs token by token. The 130 M size: 24 layers of
width 768, 128,989,632 parameters, as released; embedding and last layer are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-5


@dataclass(frozen=True)
class Sizes:
    """Of the model; `inner` is the width of all heads, `state` of what each number of a head keeps."""

    vocabulary: int = 50_288
    width: int = 768
    layers: int = 24
    head_width: int = 64
    state: int = 128
    window: int = 4
    chunk: int = 256

    @property
    def inner(self) -> int:
        return 2 * self.width

    @property
    def heads(self) -> int:
        return self.inner // self.head_width


SMALL = Sizes()


def decays(steps: Tensor) -> Tensor:
    """Of logarithms of decays `[... length]` those from each place to each later one, `[... to from]`; 0 from later ones."""
    reached = steps.cumsum(dim=-1)
    later = torch.ones(steps.shape[-1], steps.shape[-1], dtype=torch.bool).triu(1)
    return (reached[..., :, None] - reached[..., None, :]).masked_fill(later, -torch.inf).exp()


def scan(inputs: Tensor, steps: Tensor, keys: Tensor, queries: Tensor) -> Tensor:
    """What each token reads of the states: state <- exp(step) state + input key, output = state query.

    `inputs` `[batch heads chunks chunk head]`, `steps` `[batch heads chunks chunk]`, `keys` and `queries` `[batch 1 chunks chunk state]`.
    """
    near = (queries @ keys.transpose(-1, -2) * decays(steps)) @ inputs
    reached = steps.cumsum(dim=-1)
    whole = reached[..., -1:]  # the decay of a whole chunk
    added = (inputs * (whole - reached).exp()[..., None]).transpose(-1, -2) @ keys  # [batch heads chunks head state]
    between = decays(functional.pad(whole[..., 0], (1, 0)))[..., :-1, 1:]
    handed = (between @ added.flatten(3)).view_as(added)  # the state before each chunk
    return near + queries @ handed.transpose(-1, -2) * reached.exp()[..., None]


class Mixer(nn.Module):
    """A state-space layer: `[batch length width]` to the same; the length is a multiple of the chunk."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, mixed = sizes, sizes.inner + 2 * sizes.state
        self.inward = nn.Linear(sizes.width, sizes.inner + mixed + sizes.heads, bias=False)
        self.convolution = nn.Conv1d(mixed, mixed, sizes.window, padding=sizes.window - 1, groups=mixed)
        self.step, self.log_rate, self.past = (nn.Parameter(torch.ones(sizes.heads)) for _ in range(3))
        self.norm, self.outward = nn.RMSNorm(sizes.inner, EPSILON), nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        sizes, length = self.sizes, hidden.shape[1]
        gate, mixed, step = self.inward(hidden).split([sizes.inner, sizes.inner + 2 * sizes.state, sizes.heads], dim=2)
        mixed = functional.silu(self.convolution(mixed.transpose(1, 2))[..., :length]).transpose(1, 2)
        values, keys, queries = mixed.split([sizes.inner, sizes.state, sizes.state], dim=2)
        step = functional.softplus(step + self.step)
        heads, step = self._chunks(values.unflatten(2, (sizes.heads, -1))), self._chunks(step[..., None])
        steps = (step * -self.log_rate.exp()[:, None, None, None])[..., 0]
        read = scan(heads * step, steps, self._chunks(keys[:, :, None]), self._chunks(queries[:, :, None]))
        read = read + heads * self.past[:, None, None, None]
        joined = read.flatten(2, 3).transpose(1, 2).flatten(2)
        return self.outward(self.norm(joined * functional.silu(gate)))

    def _chunks(self, sequence: Tensor) -> Tensor:
        """`[batch length heads width]` to `[batch heads chunks chunk width]`."""
        return sequence.transpose(1, 2).unflatten(2, (-1, self.sizes.chunk))


class Block(nn.Module):
    """A state-space layer, normalised before and added to its input."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm, self.mixer = nn.RMSNorm(sizes.width, EPSILON), Mixer(sizes)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.mixer(self.norm(hidden))


class Mamba(nn.Module):
    """Token ids `[batch length]` to logits `[batch length vocabulary]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, EPSILON)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))
