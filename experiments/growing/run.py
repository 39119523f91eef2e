"""Does more memory, or a device more, ever make the step of `best` longer at equal evaluations?

    python -m experiments.growing.run [--pairs N]

A pair is a random problem and a larger one that has every placement of the smaller (`problems`). Beside the larger one stands the control:
the smaller once more, with another seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from experiments import cells, output, results
from experiments.growing.problems import Growth, pair
from gnnplace.portfolio import portfolio
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

HERE = Path(__file__).resolve().parent
PAIRS, EVALUATIONS, WORSE = 100, (120, 300), 1.05


def measured(growth: Growth, seed: int, evaluations: int) -> cells.Cell:
    """The steps of a pair's smaller problem, of the larger one, and of the smaller one with another seed, in ns; None where none fits."""
    small, large = pair(growth, seed)
    return {
        "small_ns": best_ns(small, evaluations),
        "large_ns": best_ns(large, evaluations),
        "again_ns": best_ns(small, evaluations, seed=1),
    }


def best_ns(posed: Problem, evaluations: int, seed: int = 0) -> int | None:
    """How long the step of `best` takes."""
    budget = portfolio.budget(posed, evaluations=evaluations)
    return simulate(posed, [portfolio.portfolio(posed, simulate, budget, portfolio.Options(seed=seed)).placement])[0].feasible_ns


def table(found: output.Document) -> str:
    """How many steps are longer by over 5 %, and how long they all are."""
    lines = [
        [growth, str(evaluations), str(len(chosen)), *(part for what in ("large_ns", "again_ns") for part in _said(chosen, what))]
        for growth in get_args(Growth)
        for evaluations in EVALUATIONS
        if (chosen := [cell for cell in _of(found, growth, evaluations) if cell["small_ns"] is not None])
    ]
    larger, again = (["longer by over 5 %", "the most", "mean"] for _ in range(2))
    again[0] = f"another seed: {again[0]}"
    return results.markdown_table(["the larger has", "evaluations", "pairs", *larger, *again], lines)


def _of(found: output.Document, growth: Growth, evaluations: int) -> list[cells.Cell]:
    return [cell for name, cell in found["cells"].items() if name.startswith(f"{growth}/") and name.endswith(f"/{evaluations}")]


def _said(chosen: Sequence[cells.Cell], what: str) -> list[str]:
    """How many steps take over `WORSE` of the smaller problem's, or do not fit; the longest; the geometric mean of those that fit."""
    ratios = [np.inf if cell[what] is None else cell[what] / cell["small_ns"] for cell in chosen]
    fit = [ratio for ratio in ratios if np.isfinite(ratio)]
    return [str(sum(ratio > WORSE for ratio in ratios)), f"{max(ratios):.2f}", f"{np.exp(np.mean(np.log(fit))):.3f}"]


def jobs(pairs: int) -> dict[str, tuple[Callable[..., cells.Cell], tuple[Any, ...]]]:
    """A job for each pair and number of evaluations."""
    named = [(growth, seed, evaluations) for growth in get_args(Growth) for evaluations in EVALUATIONS for seed in range(pairs)]
    return {f"{growth}/{seed}/{evaluations}": (measured, (growth, seed, evaluations)) for growth, seed, evaluations in named}


def main() -> None:
    taken = output.parser(__doc__)
    taken.add_argument("--pairs", type=int, default=PAIRS)
    chosen = taken.parse_args()
    found: output.Document = {"cells": cells.compute(HERE / "results" / "growing.json", jobs(chosen.pairs), {"worse": WORSE})}
    output.show(table(found), found, chosen, HERE / "results" / "growing.md")


if __name__ == "__main__":
    main()
