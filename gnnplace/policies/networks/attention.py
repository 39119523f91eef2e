"""Additive, content-based attention (Vinyals et al. 2015): `score_j = v . tanh(memory_j + query)`.

All scores of a sequence are samples x queries x slots x width numbers, 1 GB for 16 samples of 256 groups. They are
never held: the forward pass goes query by query through the cache, and the backward pass computes the tanh again.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.policies.networks.glorot import glorot

CHUNK = 1 << 17  # numbers at a time: 512 KiB, which stays in a core's cache


class AdditiveAttention(nn.Module):
    """Attends with queries to a memory of slots; what is returned is a mean of the *transformed* slots, as the authors do."""

    def __init__(self, slot_width: int, query_width: int, *, width: int) -> None:
        super().__init__()
        self.slots = nn.Linear(slot_width, width, bias=False)
        self.query = nn.Linear(query_width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        glorot(self)

    def memory(self, slots: Float[Tensor, "leading slots slot_width"]) -> Float[Tensor, "leading slots width"]:
        """The transformed slots, to be attended to many times."""
        return self.slots(slots)

    def forward(
        self, memory: Float[Tensor, "leading slots width"], states: Float[Tensor, "leading queries query_width"]
    ) -> Float[Tensor, "leading queries width"]:
        """What each query reads; the softmax is over slots."""
        scores = AdditiveScores.apply(memory, self.query(states), self.score.weight[0])
        return torch.softmax(scores, dim=-1) @ memory


class AdditiveScores(torch.autograd.Function):
    """`scores[l, q, s] = v . tanh(memory[l, s] + query[l, q])`, in memory that does not grow with the width."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        memory: Float[Tensor, "leading slots width"],
        query: Float[Tensor, "leading queries width"],
        v: Float[Tensor, " width"],
    ) -> Float[Tensor, "leading queries slots"]:
        ctx.save_for_backward(memory, query, v)
        scores = memory.new_empty(memory.shape[0], query.shape[1], memory.shape[1])
        for row, part in _chunks(memory, query):
            scores[row, part] = (memory[row] + query[row, part, None]).tanh_() @ v
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """With x the tanh and g the gradient: `dv = sum g x`, the others `v sum g (1 - x^2)` over queries or over slots."""
        memory, query, v = ctx.saved_tensors
        grad = grads[0].contiguous()
        dv, over_queries, over_slots = torch.zeros_like(v), torch.zeros_like(memory), torch.empty_like(query)  # the last two of g x^2
        for row, part in _chunks(memory, query):
            x = (memory[row] + query[row, part, None]).tanh_()
            g = grad[row, part]
            dv += g.flatten() @ x.flatten(0, 1)
            squares = x.square_()
            over_slots[row, part] = torch.bmm(g.unsqueeze(1), squares).squeeze(1)
            for weight, square in zip(g, squares, strict=True):
                over_queries[row].addcmul_(weight.unsqueeze(-1), square)
        return v * (grad.sum(1).unsqueeze(-1) - over_queries), v * (grad.sum(2).unsqueeze(-1) - over_slots), dv


def _chunks(memory: Tensor, query: Tensor) -> list[tuple[int, slice]]:
    """Rows of the leading axis, and as many of their queries as fit a chunk."""
    size = max(1, CHUNK // max(1, memory[0].numel()))
    return [(row, slice(start, start + size)) for row in range(memory.shape[0]) for start in range(0, query.shape[1], size)]
