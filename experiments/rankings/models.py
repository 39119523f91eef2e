"""What may rank moves: an estimate, logistic regression, boosted trees, a perceptron over features, GNNs over the placed graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn
from torch_geometric.nn import GINEConv
from torch_geometric.utils import scatter

from experiments.rankings.pools import Known
from gnnplace.baselines.ranked_climb import path_estimate
from gnnplace.moves.ranking import squashed
from gnnplace.policies.improver.learning import all_actions
from gnnplace.policies.improver.scorer import MoveScorer

Kind = Literal["path", "random", "logistic", "trees", "perceptron", "gnn alone", "gnn", "gnn, device nodes", "gnn, sweeps"]
Score = Callable[[Known], np.ndarray]
WIDTH, EPOCHS, RATE, TOGETHER = 128, 4, 2e-3, 8
GRAPH_WIDTH, ROUNDS, SWEEPS = 32, 3, 12
SHARED, POWER, DRAWS = 0.2, 0.5, 4


def fitted(kind: Kind, pools: Sequence[Known], seed: int) -> Score:
    """The ranking of a kind, learned from pools."""
    match kind:
        case "path":
            return lambda known: path_estimate(known.rows)
        case "random":
            generator = np.random.default_rng(seed)
            return lambda known: generator.random(len(known.rows))
        case "trees":
            return _trees(pools, seed)
        case "logistic" | "perceptron":
            return _trained(_OnRows(0 if kind == "logistic" else 2), pools, seed)
        case _:
            how = {"gnn, device nodes": "devices", "gnn, sweeps": "sweeps"}.get(kind, "messages")
            return _trained(_OnGraphs(how, with_rows=kind != "gnn alone"), pools, seed)


def _trees(pools: Sequence[Known], seed: int) -> Score:
    """The chance that a move gains: a GBM has no gradient to rank a pool by."""
    rows, gains = np.concatenate([known.rows for known in pools]), np.concatenate([known.gain for known in pools])
    model = HistGradientBoostingClassifier(max_iter=150, random_state=seed).fit(squashed(rows), gains > 0)
    return lambda known: model.predict_proba(squashed(known.rows))[:, 1]


class _OnRows(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.scorer = MoveScorer(WIDTH, hidden)

    def forward(self, known: Known) -> Float[Tensor, " moves"]:
        return self.scorer(torch.from_numpy(known.rows))


class _OnGraphs(nn.Module):
    """Ops are encoded anew for each placement; a move is the work-weighted mean and the largest of its ops, beside its target devices."""

    def __init__(self, how: str, with_rows: bool) -> None:
        super().__init__()
        self.how, self.with_rows, width = how, with_rows, GRAPH_WIDTH
        self.scorer = MoveScorer(WIDTH, 2)  # for its range, and where it is alone
        self.embed = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width))
        rounds = SWEEPS if how == "sweeps" else ROUNDS
        shared = how == "sweeps"  # the same weights in each round, so that what is said travels along whole paths
        self.along = nn.ModuleList(_conv(width) for _ in range(1 if shared else rounds))
        self.against = nn.ModuleList(_conv(width) for _ in range(1 if shared else rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.rounds = rounds
        self.of_device = nn.Linear(width, width)
        rows = len(self.scorer.low) if with_rows else 0
        self.out = nn.Sequential(nn.Linear(rows + 4 * width, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, known: Known) -> Float[Tensor, " moves"]:
        node, edge, edges = torch.from_numpy(known.node), torch.from_numpy(known.edge), torch.from_numpy(known.edges)
        device, count = torch.from_numpy(known.device), int(max(known.device.max(), known.target.max())) + 1
        hidden, weight = self.embed(node), node[:, :1] + 1e-6
        for number in range(self.rounds):
            layer = min(number, len(self.along) - 1)
            message = self.along[layer](hidden, edges, edge) + self.against[layer](hidden, edges.flip(0), edge)
            if self.how == "devices":
                message = message + self.of_device(_mean(hidden, weight, device, count))[device]
            hidden = self.norms[number](hidden + torch.relu(message))
        on_device = self.of_device(_mean(hidden, weight, device, count))
        move, op = torch.from_numpy(known.moved)
        moves = len(known.rows)
        parts = [
            _mean(hidden[op], weight[op], move, moves),
            scatter(hidden[op], move, 0, moves, "max"),
            _mean(on_device[torch.from_numpy(known.target)], weight[op], move, moves),
            _mean(on_device[device[op]], weight[op], move, moves),
        ]
        if self.with_rows:
            rows = torch.from_numpy(squashed(known.rows)).clamp(self.scorer.low, self.scorer.high)
            parts.append((rows - self.scorer.mean) / self.scorer.spread)
        return self.out(torch.cat(parts, dim=1)).squeeze(-1)


def _conv(width: int) -> GINEConv:
    return GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), edge_dim=2, aggr="max")


def _mean(values: Tensor, weight: Tensor, of: Tensor, count: int) -> Tensor:
    return scatter(values * weight, of, 0, count, "sum") / scatter(weight, of, 0, count, "sum").clamp(min=1e-9)


def _trained(model: nn.Module, pools: Sequence[Known], seed: int) -> Score:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    generator = np.random.default_rng(seed)
    model.scorer.fit_range(torch.from_numpy(np.concatenate([known.rows for known in pools[:: max(1, len(pools) // 500)]])))
    adam = torch.optim.AdamW(model.parameters(), RATE, weight_decay=1e-4)
    steps = EPOCHS * (len(pools) // TOGETHER)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=steps + 1, pct_start=0.1)
    for _ in range(EPOCHS):
        order = generator.permutation(len(pools))
        for first in range(0, len(order) - TOGETHER + 1, TOGETHER):
            losses = [
                all_actions(model(pools[index]), torch.from_numpy(pools[index].gain), DRAWS, SHARED, POWER)
                for index in order[first : first + TOGETHER]
            ]
            adam.zero_grad()
            torch.stack(losses).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            schedule.step()

    @torch.no_grad()
    def score(known: Known) -> np.ndarray:
        return model(known).numpy()

    return score
