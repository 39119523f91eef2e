"""Which model ranks moves best on lineages that it never saw?

    python -m experiments.rankings.run [--pools N] [--seeds N] [--most-ops N]

Each cell holds out a lineage of the training split, or the validation split. Models learn from the same pools of the others, with the
same loss. A figure is the share of a pool's best gain that the first four moves of a ranking have, averaged over 400 pools of what is
held out.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from experiments import cells, output, results
from experiments.rankings.models import Kind, fitted
from experiments.rankings.pools import captured, collected
from gnnplace.corpus.splits import FIXED

HERE = Path(__file__).resolve().parent
TESTED, MOST_TESTED = 400, 5500  # pools, ops: recurrent networks are large
VALIDATION = tuple(lineage for lineage, split in FIXED.items() if split == "validation")
FOLDS = {"recurrent": ("recurrent",), "convolutional": ("convolutional",), "transformer": ("transformer",), "validation": VALIDATION}
LEARNED_FROM = tuple(lineage for lineage, split in FIXED.items() if split != "test")


def cell(fold: str, seed: int, pools: int, most_ops: int) -> cells.Cell:
    """Every model on one fold."""
    torch.set_num_threads(1)
    held = FOLDS[fold]
    learned = collected([each for each in LEARNED_FROM if each not in held], pools, most_ops, 2 * seed)
    tested = collected(held, TESTED, MOST_TESTED, 2 * seed + 1)
    found: cells.Cell = {}
    for kind in get_args(Kind):
        begun = time.perf_counter()
        score = fitted(kind, learned, seed)
        between = time.perf_counter()
        shares = [captured(score(known), known) for known in tested]
        ended = time.perf_counter()
        found[kind] = {
            "captured": float(np.mean(shares)),
            "learning_s": round(between - begun, 1),
            "ms_a_pool": round(1e3 * (ended - between) / len(tested), 2),
        }
        print(fold, seed, kind, found[kind], flush=True)
    return found


def table(found: output.Document) -> str:
    """Means over seeds, a column a fold."""
    lines = []
    for kind in get_args(Kind):
        of = {fold: [each[kind] for key, each in found["cells"].items() if key.startswith(fold)] for fold in FOLDS}
        shares = {fold: float(np.mean([each["captured"] for each in some])) for fold, some in of.items() if some}
        everything = [each for some in of.values() for each in some]
        cost = [f"{np.median([each[name] for each in everything]):.1f}" for name in ("learning_s", "ms_a_pool")]
        lines.append([kind, f"{np.mean(list(shares.values())):.3f}", *(f"{shares[fold]:.3f}" for fold in FOLDS if fold in shares), *cost])
    return results.markdown_table(["model", "mean", *FOLDS, "learning, s", "ms a pool"], lines)


def main() -> None:
    taken = output.parser(__doc__)
    taken.add_argument("--pools", type=int, default=2000)
    taken.add_argument("--seeds", type=int, default=2)
    taken.add_argument("--most-ops", type=int, default=2500)
    chosen = taken.parse_args()
    settings = {"pools": chosen.pools, "most_ops": chosen.most_ops, "tested": TESTED, "most_tested": MOST_TESTED}
    jobs = {f"{fold}/{seed}": (cell, (fold, seed, chosen.pools, chosen.most_ops)) for seed in range(chosen.seeds) for fold in FOLDS}
    found: output.Document = {"cells": cells.compute(HERE / "results" / "rankings.json", jobs, settings), "settings": settings}
    output.show(table(found), settings, chosen, HERE / "results" / "rankings.md")


if __name__ == "__main__":
    main()
