"""GO's three tasks alone and together: what joint decisions of fusion, devices and priorities bring over devices alone.

    python -m experiments.planners.tasks [--seeds 1] [--show] [--json]

As in `run`, with 5,000 evaluations, on graphs of a few hundred ops: a thousand are too few for the joint tasks. Below them hill climbing
over devices with as many evaluations, of ops that run by themselves and of ops that are fused by default. Resumable.
"""

from __future__ import annotations

from itertools import product

from experiments import cells, output, results
from experiments.cells import Job
from experiments.planners import run, table
from experiments.planners.columns import ABLATIONS, FUSED, SCHEDULE

PATH = run.HERE / "results" / "tasks.json"
PROBLEMS = (("squeezenet", "k40-2"), ("transformer-xl-2", "k40-2"))
EVALUATIONS = 5000
TITLE = "Tasks: GO"


def jobs(seeds: int) -> dict[str, Job]:
    """Every column of the tasks, every search and the heuristics."""
    made: dict[str, Job] = {f"{graph}/{cluster}/heuristics": (run.heuristics, (graph, cluster)) for graph, cluster in PROBLEMS}
    for seed, (graph, cluster) in product(range(seeds), PROBLEMS):
        for function, columns in ((run.policy, tuple(ABLATIONS[TITLE])), (run.search, FUSED[TITLE])):
            made |= {
                f"{graph}/{cluster}/{name}/{EVALUATIONS}/{seed}": (function, (graph, cluster, name, EVALUATIONS, seed)) for name in columns
            }
    return made


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="only the table of the cells that are there")
    chosen = parser.parse_args()
    found = results.load(PATH)["cells"] if chosen.show else cells.compute(PATH, jobs(chosen.seeds), {"schedule": SCHEDULE})
    shown = table.ablation(found, TITLE, [*ABLATIONS[TITLE], *FUSED[TITLE]], PROBLEMS, EVALUATIONS)
    output.show(shown, {"cells": len(found)}, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
