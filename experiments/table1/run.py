"""Table 1 of the hierarchical planner's paper beside ours: heuristics, search and learned policies on one CPU and two K40s.

Each policy's cell is the best of its *own* samples and greedy decodings; no heuristic's placement is a candidate.
Random search (over the same units) and hill climbing (from the best heuristic) get as many evaluations. Resumable: finished
cells are kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np

from experiments import cells, training
from experiments.cells import Cell, Job
from experiments.problems import heuristics_ns, problem_of, time_ns
from experiments.table1 import plot
from gnnplace import build
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.budget import Budget
from gnnplace.baselines.random_units import random_units
from gnnplace.evaluate.bounds import lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.report import results

HERE = Path(__file__).resolve().parent
GRAPHS = ("inception-v3-b1", "inception-v3-b32", "rnnlm-2", "nmt-2")
CLUSTER = "k40-2"
SEARCHES = ("random", "hill-climb")
CALM = "paper, average from the first rewards"
CALM_GRAPHS = ("inception-v3-b1", "inception-v3-b32")
PAPER: dict[str, dict[str, float | None]] = {  # ICLR 2018, table 1: seconds (None: out of memory)
    "inception-v3-b1": {"cpu": 0.61, "gpu": 0.15, "expert": 0.15, "scotch": 0.93, "mincut": 0.82, "planner": 0.13},
    "rnnlm-2": {"cpu": 6.89, "gpu": 1.57, "expert": 1.57, "scotch": 5.62, "mincut": 5.21, "planner": 1.57},
    "nmt-2": {"cpu": 6.46, "gpu": None, "expert": 2.13, "scotch": 3.21, "mincut": 5.34, "planner": 0.84},
}


def heuristics(graph: str) -> Cell:
    """Every baseline but search, under the critical-path schedule, and the bound."""
    problem = problem_of(graph, CLUSTER)
    return {"heuristics": heuristics_ns(problem), "bound_ns": int(lower_bound(problem))}


def search(graph: str, name: str, seed: int, evaluations: int) -> Cell:
    """The best of as many evaluations as a policy gets; random search over the same units."""
    problem, generator = problem_of(graph, CLUSTER), np.random.default_rng(seed)
    if name == "random":
        found = random_units(problem, simulate, generator, units_name="coarse", evaluations=evaluations)
    else:
        start = build.best_heuristic(problem, simulate)
        found = hill_climb(problem, simulate, generator, start=start, budget=Budget(evaluations=evaluations))
    return {"best_ns": time_ns(problem, found)}


def policy(graph: str, encoder: str, seed: int, overrides: tuple[str, ...]) -> Cell:
    """One training run of a configuration from configs/."""
    problem = problem_of(graph, CLUSTER)
    config = training.config_of(encoder, (f"--seed={seed}", *overrides))
    teachers = [training.teacher_of(problem, config)]
    learner, curve = training.train(config, [problem], teachers)
    times = {key: curve.of(key) for key in ("/mean_ns", "/best_ns", "/greedy_ns", "/entropy")}
    ops = {name: curve.of(f"/ops on {name}") for name in problem.cluster.device_names}
    return training.outcome(learner) | {"evaluations": config.training.samples * config.training.updates, "curve": times, "ops": ops}


def jobs(arguments: argparse.Namespace) -> dict[str, Job]:
    """Everything to be computed, by the name of its cell."""
    gnn = (f"--training.updates={arguments.updates}",)
    evaluations = arguments.updates * training.config_of("gnn", gnn).training.samples
    made: dict[str, Job] = {}
    for graph in GRAPHS:
        made[f"{graph}/heuristics"] = (heuristics, (graph,))
        for seed in range(arguments.seeds):
            made[f"{graph}/gnn/{seed}"] = (policy, (graph, "gnn", seed, gnn))
            for name in SEARCHES:
                made[f"{graph}/{name}/{seed}"] = (search, (graph, name, seed, evaluations))
    paper = (f"--training.updates={arguments.paper_updates}",)
    made |= {f"{graph}/paper/0": (policy, (graph, "paper", 0, paper)) for graph in GRAPHS}
    calm = (*paper, "--training.advantage.initial=null")
    return made | {f"{graph}/{CALM}/0": (policy, (graph, "paper", 0, calm)) for graph in CALM_GRAPHS}


def run(arguments: argparse.Namespace) -> dict[str, Cell]:
    """Every cell, by name."""
    settings = {"updates": arguments.updates, "paper_updates": arguments.paper_updates}
    return cells.compute(HERE / "results" / "table1.json", jobs(arguments), settings)


def rows(found: dict[str, Cell]) -> list[list[str]]:
    """One row a graph: milliseconds; policies and searches as median [least - most] over seeds."""
    return [_row(graph, found) for graph in GRAPHS]


def _row(graph: str, computed: dict[str, Cell]) -> list[str]:
    found = computed[f"{graph}/heuristics"]
    times = {name: value for name, value in found["heuristics"].items() if value is not None}
    best = min(times, key=lambda name: times[name])
    groups = [_spread([computed[name]["best_ns"] for name in sorted(computed) if name.startswith(f"{graph}/{column}/")]) for column in
              ("random", "hill-climb", "gnn", "paper", CALM)]  # fmt: skip
    greedy = _spread([computed[name]["greedy_ns"] for name in sorted(computed) if name.startswith(f"{graph}/gnn/")])
    singles = [_ms(times.get(name)) for name in ("cpu", "gpu", "expert")]
    return [graph, *singles, f"{_ms(times[best])} ({best})", *groups, greedy, _ms(found["bound_ns"])]


PAPER_HEADER = ["graph", "cell", "paper, s", "ours, s", "ours / paper"]


def paper_rows(found: dict[str, Cell]) -> list[list[str]]:
    """The paper's cells beside ours: a K40 under roofline costs is a scenario, not a reproduction (README.md says what differs)."""
    made = []
    for graph, paper in PAPER.items():
        ours = dict(found[f"{graph}/heuristics"]["heuristics"])
        learned = [found[name]["best_ns"] for name in sorted(found) if name.startswith(f"{graph}/paper/")]
        if learned:
            ours["planner"] = learned[0]
        for cell in (name for name in ("cpu", "gpu", "expert", "planner") if name in ours):
            made.append([graph, cell, *_beside(paper[cell], ours[cell])])
    return made


def _beside(paper_s: float | None, ours_ns: int | None) -> tuple[str, str, str]:
    theirs = "out of memory" if paper_s is None else f"{paper_s:.2f}"
    ours = "infeasible" if ours_ns is None else f"{ours_ns / 1e9:.3f}"
    return theirs, ours, f"{ours_ns / 1e9 / paper_s:.2f}" if paper_s and ours_ns else "-"


def _ms(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{time_ns / 1e6:.2f}"


def _spread(times: list[int | None]) -> str:
    known = [time for time in times if time is not None]
    if not known:
        return "-"
    median = _ms(int(statistics.median(known)))
    return median if len(known) == 1 else f"{median} [{_ms(min(known))} - {_ms(max(known))}]"


HEADER = ["graph", "CPU", "1 GPU", "expert", "best heuristic", "random", "hill climbing", "`--encoder gnn`", "`--encoder paper`",
          CALM, "gnn, greedy", "bound"]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=300, help="updates of the gnn policy")
    parser.add_argument("--paper-updates", type=int, default=1000, help="updates of the paper's policy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="only tables and pictures of the cells that are there")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    arguments = parser.parse_args()
    found = results.load(HERE / "results" / "table1.json")["cells"] if arguments.show else run(arguments)
    table = results.markdown_table(HEADER, rows(found)) + "\n" + results.markdown_table(PAPER_HEADER, paper_rows(found))
    (HERE / "results" / "table1.md").write_text(table)
    plot.draw(found, GRAPHS, ("gnn", "paper", CALM), HERE / "results" / "table1.png")
    print(table)
    if arguments.json:
        print(json.dumps({"header": HEADER, "rows": rows(found)}))


if __name__ == "__main__":
    main()
