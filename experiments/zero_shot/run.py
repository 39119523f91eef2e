"""Does the improver place graphs that it never saw better than search does, at equal evaluations?

    python -m experiments.zero_shot.run --part test [--checkpoint PATH] [--evaluations N] [--seeds N]

Each cell is a problem and a seed: what each method has after 24, 64, 256, ... evaluations in all, in ns. The methods share their start, the
fastest of 23 list schedules, repaired where none fits (`own` starts), or the fastest device alone (`single`). Problems are those
with room: the best heuristic, the best of all planners but searches, which simulates about 150 candidates, takes at least 1.05 times the
bound. Parts:

    validation   training and validation lineages, on presets: what settings are chosen on
    test         test lineages, on presets, up to 7,000 ops
    large        test and other lineages with 10,000 ops or more, on presets
    drawn        test lineages on drawn clusters that no training saw
    all          every graph of the corpus on every preset, with room or not
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import cells, output, results
from experiments.zero_shot.table import table
from gnnplace.baselines.annealing import annealing, hill_climb
from gnnplace.baselines.own_starts import own_start
from gnnplace.baselines.ranked_climb import DRAWN, Rank, path_estimate, ranked_climb
from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest, on_each
from gnnplace.bounds.bounds import lower_bound
from gnnplace.corpus import manifest
from gnnplace.costs import roofline
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement
from gnnplace.portfolio import planners, searches
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.training.run.selection import drawn

HERE = Path(__file__).resolve().parent
ROOM = HERE.parents[0] / "room" / "results" / "room.json"
HEURISTICS = HERE / "results" / "heuristics.json"
WITH_ROOM, SMALL, LARGE = 1.05, 7_000, 10_000
MARKS = (24, 64, 256, 1000)
DRAWN_CLUSTERS, FIRST_DRAWN = 3, 5_000_000  # of each graph; training draws other numbers
METHODS = ("learned", "learned alone", "untrained", "path", "hill-climb", "annealing", "lists")


class Recorded:
    """The simulator, which keeps the best feasible step time after each evaluation."""

    def __init__(self, before: Sequence[int] = ()) -> None:
        self.best_ns = list(before)

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        found = simulate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        for result in found:
            before = self.best_ns[-1] if self.best_ns else 0
            now = result.feasible_ns or 0
            self.best_ns.append(min(before, now) if before and now else before or now)
        return found

    def at(self, marks: Sequence[int]) -> dict[str, int | None]:
        """The best step time after so many evaluations, None where nothing was feasible; what ended early stays as it is."""
        return {str(mark): self.best_ns[min(mark, len(self.best_ns)) - 1] or None for mark in marks}


def cell(graph: str, cluster: str | int, seed: int, start: str, checkpoint: str, evaluations: int, methods: tuple[str, ...]) -> cells.Cell:
    """Every method on one problem."""
    problem = posed(graph, cluster)
    marks = [mark for mark in MARKS if mark <= evaluations]
    found: cells.Cell = {"ops": problem.num_ops, "devices": problem.num_devices}
    first, begun = start_of(problem, seed, start, evaluations)
    found["start"] = begun.at(marks)
    for method in methods:
        recorded, before = Recorded(begun.best_ns), time.perf_counter()
        _search(method, problem, recorded, first, seed, checkpoint, evaluations)
        found[method] = recorded.at(marks) | {"seconds": round(time.perf_counter() - before, 3)}
    return found


def posed(graph: str, cluster: str | int) -> Problem:
    """A problem; the cluster is a preset's name or the number of a drawn one."""
    machine = drawn(cluster) if isinstance(cluster, int) else sources.cluster(cluster)
    return roofline.problem(manifest.graph(graph), machine)


def compared(graph: str, cluster: str | int) -> cells.Cell:
    """What a problem's methods are compared with: the best heuristic's step, and the bound."""
    problem = posed(graph, cluster)
    (step,) = simulate(problem, [planners.best_heuristic(problem, simulate)])
    return {"heuristic_ns": step.feasible_ns, "bound_ns": lower_bound(problem)}


def start_of(problem: Problem, seed: int, start: str, evaluations: int) -> tuple[Placement, Recorded]:
    """Where all methods start on a problem, and the evaluations that it took."""
    recorded = Recorded()
    if start == "single":
        return fastest(problem, on_each(problem, range(problem.num_devices)), recorded), recorded
    return own_start(problem, recorded, np.random.default_rng([seed, 1]), Budget(evaluations=evaluations)), recorded


def _search(method: str, problem: Problem, evaluate: Recorded, start: Placement, seed: int, checkpoint: str, evaluations: int) -> None:
    generator, budget = np.random.default_rng(seed), Budget(evaluations=evaluations - len(evaluate.best_ns))
    if method in ("hill-climb", "annealing"):
        search: Callable[..., Placement] = hill_climb if method == "hill-climb" else annealing
        search(problem, evaluate, generator, start=start, budget=budget)
    elif method == "lists":
        source = list_schedules(problem, np.random.default_rng([seed, 2]))
        for _ in range(budget.evaluations or 0):
            evaluate(problem, [source()])
    else:
        ranks, count = _ranks(method, checkpoint)
        ranked_climb(problem, evaluate, generator, start=start, budget=budget, ranks=ranks, drawn=count)


def _ranks(method: str, checkpoint: str) -> tuple[Sequence[Rank], int]:
    match method:
        case "path":
            return [path_estimate], DRAWN
        case "learned":
            return [read_ranking(checkpoint), path_estimate], searches.LEARNED_DRAWN
        case "learned alone":
            return [read_ranking(checkpoint)], searches.LEARNED_DRAWN
        case _:
            return [untrained(read_ranking(checkpoint))], searches.LEARNED_DRAWN


def untrained(trained: Ranking) -> Ranking:
    """The network before it has learned anything: the range of its features is known, its weights are random."""
    generator = np.random.default_rng(0)
    layers = tuple(
        (generator.uniform(-1, 1, weight.shape) / np.sqrt(weight.shape[1]), np.zeros_like(bias)) for weight, bias in trained.layers
    )
    return Ranking(trained.low, trained.high, trained.mean, trained.spread, layers, trained.trained_on)


def problems(part: str) -> list[tuple[str, str | int]]:
    """The graphs and clusters of a part."""
    known, entries = results.load(ROOM)["cells"], {entry.name: entry for entry in manifest.entries()}
    chosen = []
    for name, room in sorted(known.items()):
        graph, _, cluster = name.partition("/")
        entry, has_room = entries[graph], room["heuristic_ns"] and room["heuristic_ns"] >= WITH_ROOM * room["bound_ns"]
        if (has_room or part == "all") and _is_of(part, entry):
            chosen.append((graph, cluster))
    if part == "drawn":
        names = sorted({entry.name for entry in entries.values() if entry.split == "test" and entry.ops <= SMALL})
        return [(name, FIRST_DRAWN + DRAWN_CLUSTERS * at + more) for at, name in enumerate(names) for more in range(DRAWN_CLUSTERS)]
    return chosen


def _is_of(part: str, entry: Any) -> bool:
    match part:
        case "test":
            return entry.split == "test" and entry.ops <= SMALL
        case "validation":
            return entry.split != "test" and entry.ops <= SMALL
        case "large":
            return entry.ops >= LARGE
        case _:
            return part == "all"


def run(
    part: str, start: str, checkpoint: str, evaluations: int, seeds: int, methods: Sequence[str], name: str, lineages: Sequence[str]
) -> output.Document:
    """Computes what is missing of a part, or of its graphs of some lineages; each cell is kept beside what it is compared with."""
    of = {entry.name: entry.lineage for entry in manifest.entries()}
    path = HERE / "results" / f"{name}.json"
    some = [(graph, cluster) for graph, cluster in problems(part) if not lineages or of[graph] in lineages]
    others = cells.compute(HEURISTICS, {f"{graph}/{cluster}": (compared, (graph, cluster)) for graph, cluster in some}, {})
    jobs = {
        f"{graph}/{cluster}/{seed}": (cell, (graph, cluster, seed, start, checkpoint, evaluations, tuple(methods)))
        for seed in range(seeds)
        for graph, cluster in some
    }
    settings = {"part": part, "start": start, "evaluations": evaluations, "methods": list(methods)}
    computed = cells.compute(path, jobs, settings)
    return {"cells": {key: others[key.rpartition("/")[0]] | computed[key] for key in jobs}, "settings": settings}


def main() -> None:
    taken = output.parser(__doc__)
    taken.add_argument("--part", choices=("validation", "test", "large", "drawn", "all"), default="test")
    taken.add_argument("--start", choices=("own", "single"), default="own")
    taken.add_argument("--checkpoint", default=str(searches.HELD_OUT))
    taken.add_argument("--evaluations", type=int, default=64)
    taken.add_argument("--seeds", type=int, default=5)
    taken.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    taken.add_argument("--lineages", nargs="+", default=[], help="graphs of these alone, such as those that a checkpoint has not seen")
    taken.add_argument("--name", help="the file in results/, without its ending")
    chosen = taken.parse_args()
    name = chosen.name or f"{chosen.part}-{chosen.start}-{chosen.evaluations}"
    found = run(chosen.part, chosen.start, chosen.checkpoint, chosen.evaluations, chosen.seeds, chosen.methods, name, chosen.lineages)
    output.show(table(found), found["settings"], chosen, HERE / "results" / f"{name}.md")


if __name__ == "__main__":
    main()
