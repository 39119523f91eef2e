"""What several transformers of the corpus share: the split into heads, attention in one kernel, and the block that normalises first."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def split_heads(hidden: Tensor, heads: int) -> Tensor:
    """`[batch length width]` to `[batch heads length width/heads]`."""
    return hidden.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(mixed: Tensor) -> Tensor:
    """The inverse of `split_heads`."""
    return mixed.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Attention of each position to all, or to itself and those before it; queries, keys and values are one product."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(hidden).chunk(3, dim=-1))
        return self.out(join_heads(functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)))


class Block(nn.Module):
    """Attention and a feed-forward network four times as wide inside, each normalised before and added to its input.

    `dropout`, where there is any, follows every dense layer but the first of the attention.
    """

    def __init__(self, width: int, heads: int, activation: nn.Module, *, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(width), SelfAttention(width, heads, causal)
        self.norm_2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation, self.dropout = activation, nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.attention(self.norm_1(hidden)))
        inner = self.dropout(self.activation(self.up(self.norm_2(hidden))))
        return hidden + self.dropout(self.down(inner))
