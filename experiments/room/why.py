"""Why `best` closes less than half of the room on some problems: the same time on clusters that are easier step by step.

The bounds count only transfers that no placement avoids, and give a slow device its full share of the work, be it many times slower.
Where every transfer takes a nanosecond, or where there are then no CPUs, too, or only the fastest accelerators, `best` may come close
to the bound of that problem: then it is transfers, the CPU, or slow accelerators that the bound has too cheap. Where it comes close on
none of these clusters, ops are cut in pieces on the easiest, or may stand apart: if that helps, it is that ops can't be interrupted, or
colocation. Elsewhere it is the order of ops, the memory, or the search. Resumable: finished rows are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from experiments import cells, results
from experiments.cells import Cell, Job
from experiments.room import run
from experiments.room.pieces import in_pieces
from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.cluster import MAX_RATE, Cluster, Device
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.graph import Categorical, ComputationGraph
from gnnplace.problems import Problem

PATH = Path(__file__).resolve().parent / "results" / "why.json"
CLOSE = 1.05  # times its bound: a step that is as close as this leaves no room
PIECE_NS = 50_000
FREE, ALONE, ALIKE = "links free", "links free, no CPU", "links free, fastest alone"
PIECES, APART = "the easiest, in pieces", "the easiest, no colocation"
WHICH = (FREE, ALONE, ALIKE, PIECES, APART)
HEADER = ["graph", "cluster", "closed", "`best` / bound", *WHICH]


def free(cluster: Cluster) -> Cluster:
    """The cluster with links that take no time (a nanosecond for each transfer)."""
    links = [replace(link, bandwidth_bytes_per_s=MAX_RATE, overhead_ns=0, latency_ns=0) for link in cluster.links]
    return Cluster(cluster.name, cluster.devices, tuple(links))


def alone(cluster: Cluster) -> Cluster:
    """The accelerators of a cluster. Raises ClusterError where there is none."""
    return _kept(cluster, [device for device in cluster.devices if device.kind != "cpu"])


def alike(cluster: Cluster) -> Cluster:
    """The accelerators whose memory is fastest. Raises ClusterError where there is none."""
    devices = alone(cluster).devices
    fastest = max(device.memory_bytes_per_s for device in devices)
    return _kept(cluster, [device for device in devices if device.memory_bytes_per_s == fastest])


def _kept(cluster: Cluster, devices: Sequence[Device]) -> Cluster:
    names = {device.name for device in devices}
    return Cluster(cluster.name, tuple(devices), tuple(link for link in cluster.links if {link.src, link.dst} <= names))


EASIER: Mapping[str, Callable[[Cluster], Cluster]] = {
    FREE: free,
    ALONE: lambda cluster: free(alone(cluster)),
    ALIKE: lambda cluster: free(alike(cluster)),
}


def easier_for(cluster: Cluster) -> list[str]:
    """The names of the clusters that are easier than this one and than each other."""
    rates = [device.memory_bytes_per_s for device in cluster.devices if device.kind != "cpu"]
    return [FREE] + [ALONE] * (0 < len(rates) < len(cluster.devices)) + [ALIKE] * (len(set(rates)) > 1)


def easier_problem(graph: ComputationGraph, cluster: Cluster, easier: str) -> Problem:
    """A graph on an easier cluster; in pieces, or without colocation, on the easiest."""
    if easier in EASIER:
        return roofline.problem(graph, EASIER[easier](cluster))
    if easier == APART:
        graph = replace(graph, colocation=Categorical.of([None] * graph.num_ops))
    easiest = easier_problem(graph, cluster, easier_for(cluster)[-1])
    return in_pieces(easiest, PIECE_NS) if easier == PIECES else easiest


def row(graph: str, cluster: str, easier: str, seconds: float) -> Cell:
    """What `best` finds in so many seconds of a core on an easier cluster, null where that is nothing feasible, and the bound."""
    problem = easier_problem(manifest.graph(graph), clusters.cluster(cluster), easier)
    run.compiled()
    return run.searched(problem, seconds) | {"bound_ns": lower_bound(problem), "bound": bound_name(problem)}


def falls_short(found: Cell) -> bool:
    """Whether a problem has room and `best` closes less than half of it."""
    return run.has_room(found) and (share := run.closed(found)) is not None and share < run.HALF


def distance(found: Cell | None) -> float | None:
    """How many times its bound `best` takes; None where there is nothing feasible, or no such cluster."""
    return None if found is None or found["best_ns"] is None else found["best_ns"] / found["bound_ns"]


def line(name: str, found: Cell, easier: Mapping[str, Cell]) -> list[str]:
    """A line of the table."""
    ratios = [distance(found), *(distance(easier.get(f"{name}/{which}")) for which in WHICH)]
    return [*name.split("/"), f"{100 * (run.closed(found) or 0):.1f} %", *("-" if ratio is None else f"{ratio:.3f}" for ratio in ratios)]


def far(names: Sequence[str], easier: Mapping[str, Cell], which: str) -> list[str]:
    """The problems on which `best` does not come close to the bound on that easier cluster."""
    return [name for name in names if (distance(easier.get(f"{name}/{which}")) or CLOSE + 1) > CLOSE]


def summary(short: Mapping[str, Cell], easier: Mapping[str, Cell]) -> str:
    """On how many of the problems that fall short `best` comes close to the bound, first on which of the easier clusters."""
    rest, close = sorted(short), dict[str, int]()
    for which in WHICH:
        still = far(rest, easier, which)
        close[which], rest = len(rest) - len(still), still
    counts = "; ".join(f"{which}: {number}" for which, number in close.items())
    return (
        f"Of {len(short)} problems that fall short `best` comes within {CLOSE} times the bound first on ({counts}). "
        f"On {len(rest)} it does nowhere: {', '.join(rest) or '-'}.\n"
    )


def _computed(asked: Sequence[tuple[str, str]], seconds: float) -> dict[str, Cell]:
    jobs: dict[str, Job] = {f"{name}/{which}": (row, (*name.split("/"), which, seconds)) for name, which in asked}
    return cells.compute(PATH, jobs, {"seconds": seconds})


def main() -> None:
    found, seconds = run.known(), results.load(run.BEST)["settings"]["seconds"]
    short = {name: found[name] for name in sorted(found) if falls_short(found[name])}
    asked = [(name, which) for name in short for which in easier_for(clusters.cluster(name.split("/")[1]))]
    rest, easier = list(short), _computed(asked, seconds)
    for which in EASIER:
        rest = far(rest, easier, which)
    easier = _computed([*asked, *((name, which) for name in rest for which in (PIECES, APART))], seconds)
    table = results.markdown_table(HEADER, [line(name, cell, easier) for name, cell in short.items()]) + "\n" + summary(short, easier)
    (PATH.parent / "why.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
