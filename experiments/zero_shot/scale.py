"""How long the improver takes on large graphs: its start and 64 evaluations, on all cores, once everything is compiled.

    python -m experiments.zero_shot.scale [--ops N ...]

Graphs are the large ones of the corpus, on `k40-8`, and synthetic ones, on `h200-8`, each in a process of its own, whose largest memory
is told (with the graph, which takes most of it).
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

from experiments import output, results
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import on_each
from gnnplace.corpus import manifest
from gnnplace.corpus.synthetic import synthetic
from gnnplace.costs import roofline
from gnnplace.portfolio import searches
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources

HERE = Path(__file__).resolve().parent
CORPUS = ("nmt-2", "nmt-4", "nmt-8", "gnmt-8-s100")
OPS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
CLUSTER, HUGE, EVALUATIONS, DONORS = "k40-8", "h200-8", 64, ("nmt-2", "resnet-50", "bert-base")


def measured(graph: str | int) -> dict[str, Any]:
    """Seconds of each part, the step times and the memory, for a graph of the corpus or a number of ops."""
    _improved("squeezenet")  # compiles
    start, base = time.perf_counter(), _peak_bytes()
    found = _improved(graph)
    return found | {"seconds": round(time.perf_counter() - start, 2), "peak_bytes": _peak_bytes(), "before_bytes": base}


def _improved(graph: str | int) -> dict[str, Any]:
    before = time.perf_counter()
    if isinstance(graph, str):
        read = manifest.graph(graph)
    else:
        read = synthetic("layered", num_ops=graph, seed=0, donors=[manifest.graph(name) for name in DONORS])
    ready = time.perf_counter()
    problem = roofline.problem(read, sources.cluster(CLUSTER if isinstance(graph, str) else HUGE))
    began = time.perf_counter()
    placement = searches.improved(problem, simulate, searches.shipped(), 0, Budget(evaluations=EVALUATIONS))
    ended = time.perf_counter()
    (result,), alone = simulate(problem, [placement]), simulate(problem, on_each(problem, range(problem.num_devices)))
    times = [each.feasible_ns for each in alone if each.feasible_ns is not None]
    return {
        "ops": problem.num_ops, "edges": problem.graph.num_edges, "graph_s": round(ready - before, 2), "problem_s": round(began - ready, 2),
        "improver_s": round(ended - began, 2), "step_ns": result.feasible_ns, "one_device_ns": min(times, default=None),
    }  # fmt: skip


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(found: output.Document) -> str:
    """A line for each graph."""
    rows = []
    for name, each in found["graphs"].items():
        times = [f"{each[key] / 1e6:,.0f}" if each[key] else "nothing fits" for key in ("one_device_ns", "step_ns")]
        per = each["improver_s"] / each["ops"] * 1e6
        rows.append([name, f"{each['ops']:,}", f"{each['improver_s']:.1f}", f"{per:.0f}", f"{each['peak_bytes'] / 2**30:.2f}", *times])
    header = ["graph", "ops", "64 evaluations, s", "us an op", "memory, GiB", "one device, ms", "step, ms"]
    return results.markdown_table(header, rows)


def main() -> None:
    taken = output.parser(__doc__)
    taken.add_argument("--ops", type=int, nargs="*", default=list(OPS))
    chosen = taken.parse_args()
    found: output.Document = {"provenance": results.provenance(HERE), "graphs": {}}
    for graph in (*CORPUS, *chosen.ops):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found["graphs"][str(graph)] = pool.apply(measured, (graph,))
        print(graph, found["graphs"][str(graph)], flush=True)
        results.save(HERE / "results" / "scale.json", found)
    output.show(table(found), found, chosen, HERE / "results" / "scale.md")


if __name__ == "__main__":
    main()
