"""The actions of the last iteration as features of ops: what iterated decisions see of themselves (Zhou et al., NeurIPS 2020, figure 3)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class LastActions(nn.Module):
    """A vector for each action of each task, and one for none yet; summed over tasks."""

    def __init__(self, actions: Mapping[str, int], width: int) -> None:
        super().__init__()
        self.vectors = nn.ModuleDict({task: nn.Embedding(1 + options, width) for task, options in actions.items()})

    def forward(self, before: Mapping[str, Int[Tensor, "samples ops"]], ops: int) -> Float[Tensor, "leading ops width"]:
        """Of the first iteration, which has no actions `before` it, one row that all samples share."""
        device = next(self.parameters()).device
        none = torch.zeros(1, ops, dtype=torch.long, device=device)
        return torch.stack([vector(1 + before[task] if before else none) for task, vector in self.vectors.items()]).sum(0)


class Critic(nn.Module):
    """What a state is worth: from the mean over ops of a layer that reads each op's columns and last actions."""

    def __init__(self, columns: int, actions: Mapping[str, int], width: int) -> None:
        super().__init__()
        self.of_columns, self.of_actions = nn.Linear(columns, width), LastActions(actions, width)
        self.of_mean = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ops: Float[Tensor, "ops columns"], before: Mapping[str, Int[Tensor, "samples ops"]]) -> Float[Tensor, " leading"]:
        read = torch.relu(self.of_columns(ops) + self.of_actions(before, len(ops)))
        return self.of_mean(read.mean(dim=1)).squeeze(-1)
