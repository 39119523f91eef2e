"""Why `best` closes less than half of the room on some problems: the same minute where links are free.

The bounds count only transfers that no placement avoids. Where every transfer takes a nanosecond, and the step that `best` finds then
comes closer to that problem's bound, what keeps it from the bound otherwise is transfers; where it does not, it is the order of
ops, the memory, or the search. Resumable: finished rows are kept.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from experiments import cells
from experiments.cells import Cell, Job
from experiments.room import run
from gnnplace import build
from gnnplace.baselines.budget import Budget
from gnnplace.cluster import MAX_RATE, Cluster
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.evaluate.bounds import bound_name, lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.report import results

PATH = Path(__file__).resolve().parent / "results" / "why.json"
HEADER = ["graph", "cluster", "`best` / bound", "closed", "`best` / bound, links free", "bound / bound, links free"]


def free(cluster: Cluster) -> Cluster:
    """The cluster with links that take no time (a nanosecond for each transfer)."""
    links = [replace(link, bandwidth_bytes_per_s=MAX_RATE, overhead_ns=0, latency_ns=0) for link in cluster.links]
    return Cluster(cluster.name, cluster.devices, tuple(links))


def row(graph: str, cluster: str, seconds: float) -> Cell:
    """What `best` finds in so many seconds, and the bound, where links are free; in nanoseconds."""
    problem = roofline.problem(manifest.graph(graph), free(clusters.cluster(cluster)))
    winner = build.portfolio(problem, simulate, run.SEED, Budget(seconds=seconds), "given")
    return {"best_ns": winner.standing[2], "winner": winner.planner, "bound_ns": lower_bound(problem), "bound": bound_name(problem)}


def line(name: str, found: Cell, freed: Cell) -> list[str]:
    """A line of the table."""
    ratios = [found["best_ns"] / found["bound_ns"], freed["best_ns"] / freed["bound_ns"], found["bound_ns"] / freed["bound_ns"]]
    text = [f"{ratio:.3f}" for ratio in ratios]
    return [*name.split("/"), text[0], f"{100 * (run.closed(found) or 0):.1f} %", *text[1:]]


def main() -> None:
    room = results.load(run.PATH)
    found: dict[str, Cell] = room["cells"]
    seconds: float = room["settings"]["seconds"]
    short = sorted(name for name, cell in found.items() if run.has_room(cell) and (run.closed(cell) or 0) < run.HALF)
    jobs: dict[str, Job] = {name: (row, (*name.split("/"), seconds)) for name in short}
    freed = cells.compute(PATH, jobs, {"seconds": seconds})
    table = results.markdown_table(HEADER, [line(name, found[name], freed[name]) for name in short])
    (PATH.parent / "why.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
