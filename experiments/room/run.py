"""How much room is there? For each graph and cluster: the best heuristic, search, the best known placement and the bound.

What lies between the best heuristic and the bound is the most that any policy can gain: the gate for every claim about learning.
Resumable: rows that are there for the same graph, cluster and number of evaluations are kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.problems import problem_of
from gnnplace import build
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.budget import Budget
from gnnplace.baselines.random_units import random_units
from gnnplace.evaluate.bounds import lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.placement import RULES, Placement
from gnnplace.problem import Problem
from gnnplace.report import results

HERE = Path(__file__).resolve().parent
GRAPHS = ("bert-base", "gpt2", "inception-v3-b1", "inception-v3-b32", "moe-8e", "nmt-2", "rnnlm-2", "two-tower")
CLUSTERS = ("k40-2", "k40-4", "p100-8", "mixed-4")
SEED, DRAWN = 0, 16  # a climb from random starts from the best of so many
HEADER = ["graph", "cluster", "GPU", "expert", "METIS", "HEFT", "best heuristic", "the same, fifo", "random", "climb from random",
          "climb from best", "best known", "bound", "room"]  # fmt: skip


def row(problem: Problem, evaluations: int) -> dict[str, Any]:
    """The figures of one graph on one cluster, in nanoseconds; a planner that finds nothing feasible has null."""
    found = {name: plan(problem) for name, plan in build.planners(problem, simulate, SEED).items() if name not in build.SEARCHES}
    heuristics = {name: _times(problem, placement) for name, placement in found.items()}
    best = min((name for name in found if _ns(heuristics[name])), key=lambda name: _ns(heuristics[name]) or 0, default=None)
    drawn = random_units(problem, simulate, _generator(), evaluations=DRAWN)
    starts = {"climb from random": drawn, "climb from best": build.best_heuristic(problem, simulate)}
    searches = {"random": random_units(problem, simulate, _generator(), evaluations=evaluations)} | {
        name: hill_climb(problem, simulate, _generator(), start=start, budget=Budget(evaluations=evaluations))
        for name, start in starts.items()
    }
    times = heuristics | {name: _times(problem, placement) for name, placement in searches.items()}
    known = [time for time in map(_ns, times.values()) if time is not None]
    return {
        "graph_sha256": problem.graph.sha256,
        "cluster_sha256": problem.cluster.sha256,
        "evaluations": evaluations,
        "times_ns": times,
        "best_heuristic": best,
        "best_known_ns": min(known, default=None),
        "bound_ns": int(lower_bound(problem)),
    }


def run(graphs: Sequence[str], presets: Sequence[str], evaluations: int) -> dict[str, Any]:
    """Computes what is missing, saving after each row."""
    path = HERE / "results" / "room.json"
    document = results.load(path) or {"rows": {}}
    for graph in graphs:
        for preset in presets:
            problem = problem_of(graph, preset)
            asked = {"graph_sha256": problem.graph.sha256, "cluster_sha256": problem.cluster.sha256, "evaluations": evaluations}
            if asked.items() <= document["rows"].get(f"{graph}/{preset}", {}).items():
                continue
            document["rows"][f"{graph}/{preset}"] = row(problem, evaluations) | {"provenance": results.provenance(HERE)}
            results.save(path, document)
            print(" | ".join(cells(f"{graph}/{preset}", document["rows"][f"{graph}/{preset}"])), flush=True)
    return document


def cells(name: str, figures: dict[str, Any]) -> list[str]:
    """A line of the table: milliseconds, and the room as a share of the best heuristic's time."""
    times = figures["times_ns"]
    best = figures["best_heuristic"]
    shown = [_fastest(times, start) for start in ("gpu", "expert", "metis", "heft")]
    shown += [None, None] if best is None else [times[best]["critical-path"], times[best]["fifo"]]
    shown += [_ns(times[search]) for search in ("random", "climb from random", "climb from best")]
    text = [_ms(time) for time in (*shown, figures["best_known_ns"], figures["bound_ns"])]
    text[4] += f" ({best})"
    room = "-" if best is None else f"{100 * (1 - figures['bound_ns'] / times[best]['critical-path']):.1f} %"
    return [*name.split("/"), *text, room]


def _times(problem: Problem, placement: Placement) -> dict[str, int | None]:
    rows = [replace(placement, schedule=schedule) for schedule in RULES]
    return {result.schedule: result.feasible_ns for result in simulate(problem, rows)}


def _fastest(times: dict[str, dict[str, int | None]], start: str) -> int | None:
    """The least time of the planners whose names start so."""
    return min((time for name in times if name.startswith(start) and (time := _ns(times[name])) is not None), default=None)


def _ns(times: dict[str, int | None]) -> int | None:
    return times["critical-path"]


def _generator() -> np.random.Generator:
    return np.random.default_rng(SEED)


def _ms(time: int | None) -> str:
    return "-" if time is None else f"{time / 1e6:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=GRAPHS, help="graphs of the corpus; those of the table by default")
    parser.add_argument("--clusters", nargs="*", default=CLUSTERS, help="cluster presets")
    parser.add_argument("--evaluations", type=int, default=1000, help="placements that each search may try")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    chosen = parser.parse_args()
    document = run(chosen.graphs, chosen.clusters, chosen.evaluations)
    table = results.markdown_table(HEADER, [cells(name, document["rows"][name]) for name in sorted(document["rows"])])
    (HERE / "results" / "room.md").write_text(table)
    print(table)
    if chosen.json:
        print(json.dumps(document))


if __name__ == "__main__":
    main()
