"""The policy of `transfer` with METIS's parts in place of the Grouper's groups: what groups are worth, and what messages are, given groups.

Trained and tried as there. What it stands beside are the controls, under the costs of the day.
"""

from __future__ import annotations

from collections.abc import Mapping

from experiments.cells import Cell, Job
from experiments.encoders.transfer import Plan, transfer
from experiments.encoders.transfer_table import GNN, STAGES, WAYS, overall
from gnnplace.corpus import manifest

FIXED = ("--policy.grouper=clustered", "--training.grouping.updates=0", "--training.grouping.lr_after=1")
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "gnn": (),
    "gnn, no rounds": ("--policy.encoder_rounds=0",),
    "gnn, several aggregates": ("--policy.aggregate=several",),
    "gnn, groups not apart": ("--policy.groups_apart=false",),
}


def jobs(seeds: int, plan: Plan) -> dict[str, Job]:
    """A training run for each variant and seed, by seed first."""
    return {
        f"{name}/{seed}": (transfer, (GNN, seed, Plan((*plan.overrides, *FIXED, *switches), plan.samples)))
        for seed in range(seeds)
        for name, switches in VARIANTS.items()
    }


def table(found: Mapping[str, Cell], others: Mapping[str, Cell]) -> str:
    """Every variant, trained and with its first weights, over the best heuristic, the best single device and the bound."""
    rows = {}
    for name in VARIANTS:
        cells = [cell for key, cell in sorted(found.items()) if key.rpartition("/")[0] == name]
        for stage in STAGES:
            for way in WAYS:
                rows[f"{name}: {stage}, {way}"] = {label: [cell[stage][label][way] for cell in cells] for label in others}
    return overall(rows, others, {label: manifest.entry(label.rpartition(".")[0]).family for label in others})
