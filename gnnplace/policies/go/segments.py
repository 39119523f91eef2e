"""Segment-recurrent attention without positions (Zhou et al., NeurIPS 2020, section 4.2).

It is Transformer-XL's (Dai et al., ACL 2019). A sequence is cut into segments. An op attends to its own segment, in
both directions, and to the hidden states of the segment before it, through which no gradient passes. So time and memory
grow linearly with the sequence, and each further layer looks one segment further back. Positions are not embedded: an
op is known by its graph, not by its number.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gnnplace.policies.glorot import glorot

MOST_ROWS = 1 << 17  # above it a layer's activations are not kept: the backward pass computes them again


class SegmentAttention(nn.Module):
    """Multi-head attention of each segment to itself and to the segment before it.

    Keys have no bias: the softmax would not see it.
    """

    def __init__(self, width: int, *, heads: int, segment: int) -> None:
        super().__init__()
        self.heads, self.segment = heads, segment
        self.query = nn.Linear(width, width, bias=False)
        self.memory = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)
        glorot(self)

    def forward(self, rows: Float[Tensor, "samples ops width"]) -> Float[Tensor, "samples ops width"]:
        samples, ops, width = rows.shape
        size = min(self.segment, ops)
        count = -(-ops // size)
        segments = nn.functional.pad(rows, (0, 0, 0, count * size - ops)).view(samples, count, size, width)
        memory = self.memory(segments)
        cached = self.memory(segments.detach()) if torch.is_grad_enabled() else memory
        # zeros before the first, which nothing attends to
        before = nn.functional.pad(cached, (0, 0, 0, 0, 1, 0))[:, :-1]
        key, value = torch.cat([before, memory], dim=2).chunk(2, dim=-1)
        seen = in_sight(ops, size, rows.device).repeat(samples, 1)[:, None, None]
        query, key, value = (self._by_head(part) for part in (self.query(segments), key, value))
        read = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.out(read.transpose(1, 2).reshape(samples, count * size, width)[:, :ops])

    def _by_head(
        self, rows: Float[Tensor, "samples segments size width"]
    ) -> Float[Tensor, "rows heads size head_width"]:
        return rows.flatten(0, 1).unflatten(-1, (self.heads, -1)).transpose(1, 2)


def in_sight(ops: int, size: int, device: torch.device) -> Bool[Tensor, "segments both"]:
    """The positions that a segment attends to, in the segment before it and in itself.

    The first segment has none before it; no op attends to padding behind the last op.
    """
    position = torch.arange(-(-ops // size), device=device)[:, None] * size + torch.arange(-size, size, device=device)
    return (position >= 0) & (position < ops)


class SegmentLayer(nn.Module):
    """A layer of a Transformer: attention, then a network for each row; a residual sum and LayerNorm after each."""

    def __init__(self, width: int, *, heads: int, segment: int, hidden: int) -> None:
        super().__init__()
        self.attention = SegmentAttention(width, heads=heads, segment=segment)
        self.after_attention, self.after_rows = nn.LayerNorm(width), nn.LayerNorm(width)
        self.of_row = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        glorot(self.of_row)

    def forward(self, rows: Float[Tensor, "samples ops width"]) -> Float[Tensor, "samples ops width"]:
        rows = self.after_attention(rows + self.attention(rows))
        return self.after_rows(rows + self.of_row(rows))


class ModulatedSegments(nn.Module):
    """`x <- a_l(m(h) * x)`, layer by layer; `m` is one more layer over the conditions `h` (Zhou et al., section 4.3).

    Without layers nothing attends. Without `modulation` it is `x <- a_l(x)`.
    """

    def __init__(
        self, width: int, *, layers: int, heads: int, segment: int, hidden: int, modulation: bool = True
    ) -> None:
        super().__init__()

        def layer() -> SegmentLayer:
            return SegmentLayer(width, heads=heads, segment=segment, hidden=hidden)

        self.layers = nn.ModuleList(layer() for _ in range(layers))
        self.modulation = layer() if modulation and layers else None

    def forward(
        self, conditions: Float[Tensor, "ops width"], rows: Float[Tensor, "samples ops width"]
    ) -> Float[Tensor, "samples ops width"]:
        factor = None if self.modulation is None else sparing(self.modulation, conditions[None])
        for layer in self.layers:
            rows = sparing(layer, rows if factor is None else factor * rows)
        return rows


def sparing(layer: nn.Module, rows: Float[Tensor, "samples ops width"]) -> Float[Tensor, "samples ops features"]:
    """A layer's output; for more than `MOST_ROWS` rows the backward pass computes the layer again."""
    if torch.is_grad_enabled() and rows.shape[:-1].numel() > MOST_ROWS:
        again: Tensor = checkpoint(layer, rows, use_reentrant=False)
        return again
    return layer(rows)
