"""CLIP (Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision", section 2.4): ViT-B/32.

Two branches that meet only in the loss: a vision transformer on 32 x 32 patches (12 layers of width 768) and a text transformer (12 of
512, 77 tokens of 49,408); the pairs of the batch are told apart from all other combinations. No dropout, no bias at the patches, QuickGELU
as in the released model; 151,277,313 parameters, as that has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build.attention import Block
from datasets.build.vit import Patches

TEMPERATURE = 0.07


@dataclass(frozen=True)
class Sizes:
    """Of the two branches."""

    image: int = 224
    patch: int = 32
    image_width: int = 768
    image_heads: int = 12
    image_layers: int = 12
    vocabulary: int = 49_408
    length: int = 77
    text_width: int = 512
    text_heads: int = 8
    text_layers: int = 12
    shared_width: int = 512


FULL = Sizes()


class QuickGELU(nn.Module):
    """The approximation of GELU by a sigmoid."""

    def forward(self, inner: Tensor) -> Tensor:
        return inner * torch.sigmoid(1.702 * inner)


class Tokens(nn.Module):
    """Token ids `[batch length]` to their embeddings, with their positions, `[batch length width]`."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) + self.position


class ImageEncoder(nn.Module):
    """Images `[batch 3 height width]` to features `[batch shared]`, from the class token."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.image_width
        self.patches, self.norm_before = Patches(sizes.image, sizes.patch, width, bias=False), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Block(width, sizes.image_heads, QuickGELU()) for _ in range(sizes.image_layers))
        self.norm_after, self.projection = nn.LayerNorm(width), nn.Linear(width, sizes.shared_width, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm_before(self.patches(images))
        for layer in self.layers:
            hidden = layer(hidden)
        return functional.normalize(self.projection(self.norm_after(hidden[:, 0])), dim=1)


class TextEncoder(nn.Module):
    """Token ids `[batch length]` to features `[batch shared]`, from the end of each text, its highest id."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.text_width
        self.tokens = Tokens(sizes.vocabulary, sizes.length, width)
        self.layers = nn.ModuleList(Block(width, sizes.text_heads, QuickGELU(), causal=True) for _ in range(sizes.text_layers))
        self.norm, self.projection = nn.LayerNorm(width), nn.Linear(width, sizes.shared_width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        ends = self.norm(hidden)[torch.arange(len(tokens)), tokens.argmax(dim=1)]
        return functional.normalize(self.projection(ends), dim=1)


class CLIP(nn.Module):
    """Images and texts to the loss of the batch: each image's own text is its class, and each text's own image."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.image, self.text = ImageEncoder(sizes), TextEncoder(sizes)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(TEMPERATURE)))

    def scores(self, images: Tensor, tokens: Tensor) -> Tensor:
        """How well each text fits each image, `[images texts]`."""
        return self.log_scale.exp() * self.image(images) @ self.text(tokens).t()

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        scores, own = self.scores(images, tokens), torch.arange(len(tokens))
        return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.t(), own)) / 2


class Matcher(CLIP):
    """Images and texts to how well each text fits each image, `[images texts]`."""

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        return self.scores(images, tokens)
