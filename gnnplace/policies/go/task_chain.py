"""Heads of several tasks in a chain, and the last iteration's actions (Zhou et al., NeurIPS 2020, figures 4 and 3)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.glorot import glorot
from gnnplace.policies.go.segments import SegmentAttention, sparing


class TaskHead(nn.Module):
    """The head of a task: `H_t = LN([A_before, H_before])`, `A_t = FC(H_t + attention(H_t))` (equations 5 and 6).

    The paper does not say how concatenation and an attention of one width go together: a linear map brings `H_t` back
    to it. FC is affine, ReLU, affine. The attention belongs to the chain, which lends it to every head; None: there is
    none.
    """

    def __init__(self, width: int, before: int, actions: int) -> None:
        super().__init__()
        self.join = nn.Sequential(nn.LayerNorm(before + width), nn.Linear(before + width, width))
        self.decide = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions))
        glorot(self)

    def forward(
        self,
        rows: Float[Tensor, "samples ops width"],
        logits: Float[Tensor, "samples ops before"],
        attention: SegmentAttention | None,
    ) -> tuple[Float[Tensor, "samples ops width"], Float[Tensor, "samples ops actions"]]:
        rows = self.join(torch.cat([logits, rows], dim=-1))
        return rows, self.decide(rows if attention is None else rows + sparing(attention, rows))


class TaskChain(nn.Module):
    """The logits of every task from the rows of a shared trunk, in the order of `actions`: the options of each task."""

    def __init__(self, actions: Mapping[str, int], *, width: int, attention: SegmentAttention | None) -> None:
        super().__init__()
        self.actions, self.attention = dict(actions), attention
        before = [0, *self.actions.values()][:-1]  # options of the task before
        tasks = zip(self.actions.items(), before, strict=True)
        self.heads = nn.ModuleDict({task: TaskHead(width, read, options) for (task, options), read in tasks})

    def forward(self, rows: Float[Tensor, "samples ops width"]) -> dict[str, Float[Tensor, "samples ops actions"]]:
        task_logits: dict[str, Tensor] = {}
        logits = rows[..., :0]
        for task, head in self.heads.items():
            rows, logits = head(rows, logits, self.attention)
            task_logits[task] = logits
        return task_logits


def mean_of_units(
    logits: Float[Tensor, "leading ops options"], unit: Int[Tensor, " ops"]
) -> Float[Tensor, "leading units options"]:
    """The mean of the logits of each unit's ops; `unit` is each op's unit, and every unit has an op."""
    ops = unit.bincount()
    sums = logits.new_zeros(len(logits), len(ops), logits.shape[-1]).index_add(1, unit, logits)
    return sums / ops[:, None]


class LastActions(nn.Module):
    """The actions of the last iteration as features of ops: the sum over tasks of a vector for each action.

    Each task has one more vector for "no action yet".
    """

    def __init__(self, actions: Mapping[str, int], width: int) -> None:
        super().__init__()
        self.vectors = nn.ModuleDict({task: nn.Embedding(1 + options, width) for task, options in actions.items()})

    def forward(self, before: Mapping[str, Int[Tensor, "samples ops"]], ops: int) -> Float[Tensor, "leading ops width"]:
        """The features of each op; one row for all samples in the first iteration, which has no actions `before` it."""
        device = next(self.parameters()).device
        none = torch.zeros(1, ops, dtype=torch.long, device=device)
        return torch.stack([vector(1 + before[task] if before else none) for task, vector in self.vectors.items()]).sum(
            0
        )


class TaskCritic(nn.Module):
    """The value of a state, from the mean over ops of a layer that reads each op's columns and last actions."""

    def __init__(self, columns: int, actions: Mapping[str, int], width: int) -> None:
        super().__init__()
        self.of_columns, self.of_actions = nn.Linear(columns, width), LastActions(actions, width)
        self.of_mean = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(
        self, ops: Float[Tensor, "ops columns"], before: Mapping[str, Int[Tensor, "samples ops"]]
    ) -> Float[Tensor, " leading"]:
        read = torch.relu(self.of_columns(ops) + self.of_actions(before, len(ops)))
        return self.of_mean(read.mean(dim=1)).squeeze(-1)
