"""What the learned ranking is worth at equal seconds: `best` with `--search learned` against `plain`, in turns.

    python -m experiments.zero_shot.seconds [--part test] [--seconds 2 10] [--problems N] [--micro-batches M]

Each cell is a problem: what `best` finds with each search, one after the other on one core, in an order that alternates. Problems are drawn
from those of a part (see `run`), one of a graph at a time, so that graphs with many clusters don't outweigh others. With several
micro-batches, which stand together, they are steps of training of 10,000 to 40,000 ops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments import cells, output, results
from experiments.zero_shot.run import LARGE, problems
from experiments.zero_shot.table import interval
from gnnplace.baselines.searching.budget import Budget
from gnnplace.choices import SearchName
from gnnplace.corpus import manifest
from gnnplace.costs import roofline
from gnnplace.portfolio import portfolio, searches
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.transformations.parallelism import Parallelism

HERE = Path(__file__).resolve().parent
LARGEST = 40_000  # ops of a step of several micro-batches
SEARCHES: tuple[SearchName, SearchName] = ("plain", "learned")


def cell(graph: str, cluster: str, seconds: float, number: int, micro_batches: int = 1) -> cells.Cell:
    """Both searches on one problem, the learned one with weights that never saw the test lineages."""
    searches.SHIPPED = searches.HELD_OUT
    step = Parallelism(micro_batches).of(manifest.graph(graph)) if micro_batches > 1 else manifest.graph(graph)
    problem = roofline.problem(step, sources.cluster(cluster))
    portfolio.portfolio(problem, simulate, Budget(seconds=1.0))  # what is compiled or kept is, for both
    found: cells.Cell = {}
    for search in SEARCHES if number % 2 else SEARCHES[::-1]:
        winner = portfolio.portfolio(problem, simulate, Budget(seconds=seconds), portfolio.Options(search=search))
        (result,) = simulate(problem, [winner.placement])
        found[search] = {"step_time_ns": result.feasible_ns, "planner": winner.planner}
    return found


def chosen_of(part: str, count: int, micro_batches: int = 1) -> list[tuple[str, str]]:
    """A problem of each graph, then a second of each, and so on, in a random order."""
    generator, of = np.random.default_rng(0), dict[str, list[str]]()
    ops = {entry.name: entry.ops * micro_batches for entry in manifest.entries()}
    for graph, cluster in problems(part):
        if micro_batches == 1 or (LARGE <= ops[graph] <= LARGEST and not graph.endswith("-inference")):
            of.setdefault(graph, []).append(str(cluster))
    for clusters in of.values():
        generator.shuffle(clusters)
    rounds = [[(graph, clusters[place]) for graph, clusters in of.items() if place < len(clusters)] for place in range(8)]
    ordered = [round_[index] for round_ in rounds for index in generator.permutation(len(round_))]
    return ordered[:count]


def table(found: output.Document) -> str:
    """Learned over plain by budget: geometric mean with its interval over families, share worse than 1.01 and better than 0.99."""
    lines = []
    for seconds in found["settings"]["seconds"]:
        of = {key: each for key, each in found["cells"].items() if key.endswith(f"/{seconds:g}")}
        times = {key: [each[search]["step_time_ns"] for search in SEARCHES] for key, each in of.items()}
        pairs = {key: both[1] / both[0] for key, both in times.items() if all(both)}
        alone = [sum(1 for both in times.values() if both[place] and not both[1 - place]) for place in range(2)]
        logs, families = np.log(list(pairs.values())), [key.split("/")[0].split("-")[0] for key in pairs]
        low, high = interval(families, logs)
        shares = [f"{np.mean(logs > np.log(1.01)):.0%}", f"{np.mean(logs < np.log(0.99)):.0%}"]
        lines.append([f"{seconds:g}", str(len(pairs)), f"{np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]", *shares, *map(str, alone)])
    header = ["seconds", "problems", "learned over plain", "worse than 1.01", "better than 0.99", "plain alone feasible", "learned alone"]
    return results.markdown_table(header, lines)


def main() -> None:
    taken = output.parser(__doc__)
    taken.add_argument("--part", choices=("validation", "test", "large", "all"), default="test")
    taken.add_argument("--seconds", type=float, nargs="+", default=[2.0, 10.0])
    taken.add_argument("--problems", type=int, default=40)
    taken.add_argument("--micro-batches", type=int, default=1)
    taken.add_argument("--name", default=None, help="the file in results/, without its ending")
    chosen = taken.parse_args()
    name = chosen.name or f"seconds-{chosen.part}" + (f"-{chosen.micro_batches}" if chosen.micro_batches > 1 else "")
    settings: dict[str, Any] = {"part": chosen.part, "seconds": chosen.seconds, "problems": chosen.problems}
    if chosen.micro_batches > 1:
        settings["micro_batches"] = chosen.micro_batches
    asked = chosen_of(chosen.part, chosen.problems, chosen.micro_batches)
    jobs = {
        f"{graph}/{cluster}/{seconds:g}": (cell, (graph, cluster, seconds, number, chosen.micro_batches))
        for seconds in chosen.seconds
        for number, (graph, cluster) in enumerate(asked)
    }
    found: output.Document = {"cells": cells.compute(HERE / "results" / f"{name}.json", jobs, settings), "settings": settings}
    output.show(table(found), settings, chosen, HERE / "results" / f"{name}.md")


if __name__ == "__main__":
    main()
