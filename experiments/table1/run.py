"""Table 1 of the paper of the hierarchical policy beside ours: its five baselines, every other heuristic, search and learned policies.

Each policy's cell is the best of its *own* samples and greedy decodings; no heuristic's placement is a candidate. Policies are trained on
the problems of `TRAINED` alone. Random search, hill climbing and annealing (from the best heuristic) get as many evaluations. Resumable:
finished cells are kept.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import groupby, product
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from experiments import cells, controls, output, results, training
from experiments.cells import Cell, Job
from experiments.problems import heuristics_ns, problem_of, time_ns
from experiments.table1 import plot
from gnnplace.baselines.annealing import annealing, hill_climb
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import lower_bound
from gnnplace.placement import Placement
from gnnplace.portfolio import planners, portfolio
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

HERE = Path(__file__).resolve().parent
PATH = HERE / "results" / "table1.json"
CLUSTERS = {"inception-v3-b1": "k40-2", "inception-v3-b32": "k40-2", "resnet-152": "k40-2", "rnnlm-2": "k40-2", "nmt-2": "k40-2",
            "nmt-4": "k40-4", "nmt-8": "k40-8"}  # fmt: skip
TRAINED = ("inception-v3-b1", "inception-v3-b32", "rnnlm-2", "nmt-2")
CALM = "paper, average from the first rewards"


class Learned(NamedTuple):
    """A column of a policy: its settings, and the encoder where there is a choice."""

    policy: str
    settings: str
    encoder: str | None = None
    overrides: tuple[str, ...] = ()


LEARNED = {  # by the names of their cells, the first three those of the committed results
    "gnn": Learned("unit-placer", "tuned"),
    "paper": Learned("hierarchical", "published"),
    CALM: Learned("hierarchical", "published", overrides=("--training.credit.initial=null",)),
    "hierarchical paper": Learned("hierarchical", "tuned", "paper"),
    "hierarchical gnn": Learned("hierarchical", "tuned", "gnn"),
}
TUNED = ("hierarchical paper", "hierarchical gnn")
KEPT = 10  # of the updates of the tuned policy's curves, every tenth: its greedy placements are of these
CALM_GRAPHS = ("inception-v3-b1", "inception-v3-b32")
BEST_S = 60.0
SearchName = Literal["random", "random parts", "climb parts", "hill-climb", "annealing"]
COLUMNS = ("cpu", "gpu", "expert", "scotch", "min-cut")
PAPER: dict[str, dict[str, float | None]] = {  # ICLR 2018, table 1: seconds (None: out of memory)
    "inception-v3-b1": {"cpu": 0.61, "gpu": 0.15, "expert": 0.15, "scotch": 0.93, "min-cut": 0.82, "planner": 0.13},
    "resnet-152": {"gpu": 1.18, "expert": 1.18, "scotch": 6.27, "min-cut": 2.92, "planner": 1.18},
    "rnnlm-2": {"cpu": 6.89, "gpu": 1.57, "expert": 1.57, "scotch": 5.62, "min-cut": 5.21, "planner": 1.57},
    "nmt-2": {"cpu": 6.46, "gpu": None, "expert": 2.13, "scotch": 3.21, "min-cut": 5.34, "planner": 0.84},
    "nmt-4": {"cpu": 10.68, "gpu": None, "expert": 3.64, "scotch": 11.18, "min-cut": 11.63, "planner": 1.69},
    "nmt-8": {"cpu": 11.52, "gpu": None, "expert": 3.88, "scotch": 17.85, "min-cut": 19.01, "planner": 4.07},
}


def heuristics(graph: str) -> Cell:
    """Every baseline but search, under the critical-path schedule, and the bound."""
    problem = problem_of(graph, CLUSTERS[graph])
    return {"heuristics": heuristics_ns(problem), "bound_ns": int(lower_bound(problem))}


def best(graph: str, seed: int) -> Cell:
    """The portfolio, with a minute on one core."""
    winner = portfolio.portfolio(
        problem_of(graph, CLUSTERS[graph]), simulate, Budget(seconds=BEST_S), portfolio.Options(seed=seed, schedule="critical-path")
    )
    return {"best_ns": winner.score[2], "best_is": winner.planner}


def search(graph: str, name: SearchName, seed: int, evaluations: int) -> Cell:
    """The best of as many evaluations as a policy gets."""
    problem, generator = problem_of(graph, CLUSTERS[graph]), np.random.default_rng(seed)
    return {"best_ns": time_ns(problem, _found(problem, name, generator, evaluations))}


def _found(problem: Problem, name: SearchName, generator: np.random.Generator, evaluations: int) -> Placement:
    if name == "random":
        return random_units(problem, simulate, generator, units_name="coarse", evaluations=evaluations)
    if name in ("random parts", "climb parts"):
        return (controls.random_parts if name == "random parts" else controls.climbed_parts)(problem, evaluations, generator)
    search = hill_climb if name == "hill-climb" else annealing
    return search(problem, simulate, generator, start=planners.best_heuristic(problem, simulate), budget=Budget(evaluations=evaluations))


def policy(graph: str, column: str, seed: int, updates: int | None) -> Cell:
    """One training run of a configuration from configs/, with as many updates as it says unless given."""
    problem, (name, settings, encoder, overrides) = problem_of(graph, CLUSTERS[graph]), LEARNED[column]
    length = () if updates is None else (f"--training.updates={updates}",)
    config = training.config_of(name, settings, (f"--seed={seed}", *length, *overrides), encoder)
    teachers = [training.teacher_of(problem, config)]
    learner, curve = training.train(config, [problem], teachers)
    each = KEPT if column in TUNED else 1
    times = {key: curve.of(key)[each - 1 :: each] for key in ("/mean_ns", "/best_ns", "/greedy_ns", "/entropy")}
    ops = {name: curve.of(f"/ops on {name}")[each - 1 :: each] for name in problem.cluster.device_names}
    return training.outcome(learner) | {"evaluations": config.training.samples * config.training.updates, "curve": times, "ops": ops}


def jobs(arguments: argparse.Namespace) -> dict[str, Job]:
    """Everything to be computed, by the name of its cell."""
    evaluations = arguments.updates * training.config_of("unit-placer", "tuned", ()).training.samples
    made: dict[str, Job] = {}
    for graph in CLUSTERS:
        made[f"{graph}/heuristics"] = (heuristics, (graph,))
        for seed in range(arguments.seeds):
            made[f"{graph}/best/{seed}"] = (best, (graph, seed))
            made |= {f"{graph}/{name}/{seed}": (search, (graph, name, seed, evaluations)) for name in get_args(SearchName)}
    for graph in TRAINED:
        made[f"{graph}/paper/0"] = (policy, (graph, "paper", 0, arguments.paper_updates))
        made |= {f"{graph}/gnn/{seed}": (policy, (graph, "gnn", seed, arguments.updates)) for seed in range(arguments.seeds)}
    for seed, graph, column in product(range(arguments.seeds), CLUSTERS, TUNED):
        made[f"{graph}/{column}/{seed}"] = (policy, (graph, column, seed, None))
    return made | {f"{graph}/{CALM}/0": (policy, (graph, CALM, 0, arguments.paper_updates)) for graph in CALM_GRAPHS}


def run(arguments: argparse.Namespace) -> dict[str, Cell]:
    """Every cell of the columns that are asked for, by name."""
    settings = {"updates": arguments.updates, "paper_updates": arguments.paper_updates}
    wanted = {name: job for name, job in jobs(arguments).items() if _wanted(name, arguments)}
    return cells.compute(PATH, wanted, settings)


def _wanted(name: str, arguments: argparse.Namespace) -> bool:
    graph, column = name.split("/")[:2]
    return (not arguments.graphs or graph in arguments.graphs) and (not arguments.columns or column in arguments.columns)


def rows(found: dict[str, Cell]) -> list[list[str]]:
    """One row a graph: milliseconds; policies and searches as median [least - most] over seeds."""
    return [_row(graph, found) for graph in CLUSTERS]


def _row(graph: str, computed: dict[str, Cell]) -> list[str]:
    found = computed[f"{graph}/heuristics"]
    times = {name: value for name, value in found["heuristics"].items() if value is not None}
    fastest = min(times, key=lambda name: times[name])
    columns = ("random", "random parts", "climb parts", "hill-climb", "annealing", "best", *LEARNED)
    groups = [_spread(_of(computed, f"{graph}/{column}/", "best_ns")) for column in columns]
    greedy = _spread(_of(computed, f"{graph}/gnn/", "greedy_ns"))
    return [graph, CLUSTERS[graph], f"{_ms(times[fastest])} ({fastest})", *groups, greedy, _ms(found["bound_ns"])]


def _of(computed: dict[str, Cell], start: str, figure: str) -> list[int | None]:
    return [computed[name][figure] for name in sorted(computed) if name.startswith(start)]


PAPER_HEADER = ["graph", *COLUMNS, "planner", "order in the paper", "order here"]


def paper_rows(found: dict[str, Cell]) -> list[list[str]]:
    """The paper's cells beside ours in seconds: a K40 under roofline costs is a scenario, not a reproduction (README.md says why)."""
    return [_paper_row(graph, paper, found) for graph, paper in PAPER.items()]


def _paper_row(graph: str, paper: dict[str, float | None], found: dict[str, Cell]) -> list[str]:
    times = found[f"{graph}/heuristics"]["heuristics"]
    ours = {name: None if times[name] is None else times[name] / 1e9 for name in COLUMNS}
    learned = _of(found, f"{graph}/paper/", "best_ns")
    theirs = [_paper_s(paper, name) for name in (*COLUMNS, "planner")]
    here = [*(_seconds(ours[name]) for name in COLUMNS), _seconds(learned[0] / 1e9) if learned and learned[0] else "-"]
    beside = [f"{one} / {other}" for one, other in zip(theirs, here, strict=True)]
    return [graph, *beside, order({name: paper[name] for name in COLUMNS if name in paper}), order(ours)]


def _paper_s(paper: dict[str, float | None], name: str) -> str:
    return "-" if name not in paper else _seconds(paper[name])


def _seconds(time_s: float | None) -> str:
    return "out of memory" if time_s is None else f"{time_s:.3g}"


def order(times_s: dict[str, float | None]) -> str:
    """The columns, fastest first; what needs no time is out of memory and left out."""
    known = sorted((time, name) for name, time in times_s.items() if time is not None)
    return " < ".join(" = ".join(name for _, name in equal) for _, equal in groupby(known, key=lambda one: _seconds(one[0])))


def _ms(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{time_ns / 1e6:.2f}"


def _spread(times: list[int | None]) -> str:
    known = [time for time in times if time is not None]
    if not known:
        return "-"
    median = _ms(int(statistics.median(known)))
    return median if len(known) == 1 else f"{median} [{_ms(min(known))} - {_ms(max(known))}]"


HEADER = [
    "graph", "cluster", "best heuristic", "random", "random over METIS's parts", "hill climbing over them", "hill climbing", "annealing",
    "`best`, 60 s", "unit placer", "hierarchical, published",
    "published, average from the first rewards", "hierarchical, `--encoder paper`", "hierarchical, `--encoder gnn`", "unit placer, greedy",
    "bound",
]  # fmt: skip


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--updates", type=int, default=300, help="updates of the unit placer")
    parser.add_argument("--paper-updates", type=int, default=1000, help="updates of the hierarchical policy")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--columns", nargs="*", help="only cells of these columns: heuristics, best, random, annealing, gnn ...")
    parser.add_argument("--graphs", nargs="*", choices=CLUSTERS, help="only cells of these graphs")
    parser.add_argument("--show", action="store_true", help="only tables and pictures of the cells that are there")
    arguments = parser.parse_args()
    found = results.load(PATH)["cells"] if arguments.show else run(arguments)
    table = results.markdown_table(HEADER, rows(found)) + "\n" + results.markdown_table(PAPER_HEADER, paper_rows(found))
    plot.draw(found, TRAINED, ("gnn", "paper", CALM), HERE / "results" / "table1.png")
    output.show(table, {"header": HEADER, "rows": rows(found)}, arguments, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
