"""What does it cost to keep modules whole, or to have stages? `best` at each granularity, with the same number of evaluations.

    python -m experiments.granularity.run     # 30 graphs on mixed-4: results/granularity.json, and the table: results/granularity.md

The price is the step time that `best` finds at a granularity by the one that it finds without constraint. Resumable: finished cells stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean

import gnnplace as gp
from experiments import cells, output, results
from experiments.cells import Cell
from experiments.problems import problem_of
from gnnplace.bounds.bounds import lower_bound
from gnnplace.portfolio import comparison, portfolio

PATH = Path(__file__).resolve().parent / "results" / "granularity.json"
CLUSTER, SEED, EVALUATIONS = "mixed-4", 0, 300
GRANULARITIES = ("op", "module", "stage")
GRAPHS = (
    "vq-vae", "amoebanet-a-mobile", "convnext-tiny", "deeplab-v3", "densenet-121", "efficientnet-b0", "inception-v3-b32", "resnet-50",
    "retinanet", "stable-diffusion", "unet", "gat", "schnet", "mlp-mixer-b16", "pointnet", "deepfm", "dlrm", "two-tower",
    "gru-lm", "nmt-2", "rnnlm-2", "mamba2-130m", "bert-base", "gpt2-medium", "llama-1b", "moe-8e", "t5-base", "vit-b16", "whisper-base",
    "wavenet-2x18",
)  # fmt: skip


def cell(graph: str, granularity: str) -> Cell:
    """What `best` finds under a constraint: its step, null where that is infeasible, who won, and the bound."""
    problem = problem_of(graph, CLUSTER)
    under = gp.constrained(problem, gp.Constraint(granularity))
    budget = portfolio.budget(under.problem, evaluations=EVALUATIONS)
    found = comparison.best(under.problem, budget, portfolio.Options(seed=SEED, stages=under.stages))
    return {
        "best_ns": found.step_time_ns,
        "winner": found.planner,
        "bound_ns": lower_bound(under.problem),
        "said_as": gp.granularity(problem, under.of_whole(found.placement)),
        "modules": gp.modules(problem.graph).num_modules,
        "ops": problem.num_ops,
    }


def price(found: Mapping[str, Cell], graph: str, granularity: str) -> float | None:
    """The step time at a granularity by the one without constraint; None where either is infeasible."""
    free, kept = (found[f"{graph}/{name}"]["best_ns"] for name in ("op", granularity))
    return None if free is None or kept is None else kept / free


def table(found: Mapping[str, Cell]) -> str:
    """Of each graph the step times, prices and rooms, and the geometric means of the prices."""
    header = ["graph", "ops", "modules", "op, ms", "module, ms", "stage, ms", "price of modules", "price of stages", "room op/module/stage"]
    rows = [_row(found, graph) for graph in GRAPHS if all(f"{graph}/{name}" in found for name in GRANULARITIES)]
    means = [f"{mean:.3f}" for mean in (geometric_mean(_prices(found, name)) for name in GRANULARITIES[1:])]
    return results.markdown_table(header, [*rows, ["geometric mean", *[""] * 5, *means, ""]])


def _prices(found: Mapping[str, Cell], granularity: str) -> list[float]:
    graphs = [graph for graph in GRAPHS if f"{graph}/op" in found and f"{graph}/{granularity}" in found]
    return [known for graph in graphs if (known := price(found, graph, granularity)) is not None]


def _row(found: Mapping[str, Cell], graph: str) -> list[str]:
    each = [found[f"{graph}/{name}"] for name in GRANULARITIES]
    rooms = [None if one["best_ns"] is None else 1 - one["bound_ns"] / one["best_ns"] for one in each]
    return [
        graph,
        f"{each[0]['ops']:,}",
        f"{each[0]['modules']:,}",
        *("-" if one["best_ns"] is None else f"{one['best_ns'] / 1e6:.2f}" for one in each),
        *("-" if (known := price(found, graph, name)) is None else f"{known:.3f}" for name in GRANULARITIES[1:]),
        " / ".join("-" if room is None else f"{100 * room:.0f} %" for room in rooms),
    ]


def main() -> None:
    chosen = output.parser(__doc__).parse_args()
    jobs = {f"{graph}/{name}": (cell, (graph, name)) for graph in GRAPHS for name in GRANULARITIES}
    found = cells.compute(PATH, jobs, {"cluster": CLUSTER, "evaluations": EVALUATIONS, "seed": SEED})
    show = {name: geometric_mean(_prices(found, name)) for name in GRANULARITIES[1:]}
    output.show(table(found), {"price": show}, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
