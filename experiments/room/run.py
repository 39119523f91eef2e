"""How much room is there? For each graph and cluster: the best heuristic, what `best` finds from there in a minute, and the bound.

What lies between the best heuristic and the bound is the most that any policy can gain: the gate for every claim about learning.
Resumable: finished rows are kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from experiments import cells
from experiments.cells import Cell, Job
from experiments.problems import heuristics, problem_of, time_ns
from gnnplace import build
from gnnplace.baselines.budget import Budget
from gnnplace.baselines.explanations import EXPLANATIONS, slower_than_one_device
from gnnplace.baselines.fastest import fastest
from gnnplace.corpus import clusters, manifest
from gnnplace.evaluate.bounds import bound_name, lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.report import results

PATH = Path(__file__).resolve().parent / "results" / "room.json"
SEED = 0
ROOM = 1.05  # a problem has room where the best heuristic takes at least so many times the bound
HALF = 0.5  # of what lies between the best heuristic and the bound: what `best` is asked for
SLOWER = 0.2  # the share of problems from which on a planner that loses to a single device is explained
HEADER = ["graph", "cluster", "one device", "best heuristic", "the same, fifo", "`best`", "its winner", "bound", "room", "closed"]


def row(graph: str, cluster: str, seconds: float) -> Cell:
    """The figures of one graph on one cluster, in nanoseconds; a planner that finds nothing feasible has null."""
    problem = problem_of(graph, cluster)
    found = heuristics(problem)
    times = {name: time_ns(problem, placement) for name, placement in found.items()}
    chosen = fastest(problem, list(found.values()), simulate)
    winner = build.portfolio(problem, simulate, SEED, Budget(seconds=seconds), "given")
    return {
        "heuristics_ns": times,
        "heuristic_ns": time_ns(problem, chosen),
        "fifo_ns": time_ns(problem, replace(chosen, schedule="fifo")),
        "best_ns": time_ns(problem, winner.placement),
        "winner": winner.planner,
        "bound_ns": lower_bound(problem),
        "bound": bound_name(problem),
    }


def room(found: Cell) -> float | None:
    """The share of the best heuristic's step that no placement is proved to need."""
    return None if found["heuristic_ns"] is None else 1 - found["bound_ns"] / found["heuristic_ns"]


def has_room(found: Cell) -> bool:
    """Whether the best heuristic takes at least `ROOM` times the bound."""
    return found["heuristic_ns"] is not None and found["heuristic_ns"] >= ROOM * found["bound_ns"]


def closed(found: Cell) -> float | None:
    """The share of what lies between the best heuristic and the bound by which `best` is faster."""
    heuristic_ns, bound_ns = found["heuristic_ns"], found["bound_ns"]
    return None if heuristic_ns in (None, bound_ns) else (heuristic_ns - found["best_ns"]) / (heuristic_ns - bound_ns)


def line(name: str, found: Cell) -> list[str]:
    """A line of the table: milliseconds and shares."""
    times = {key: value for key, value in found["heuristics_ns"].items() if value is not None}
    named = min(times, key=lambda key: times[key], default="none")
    device = min((times[key] for key in ("cpu", "gpu") if key in times), default=None)
    shown = [device, found["heuristic_ns"], found["fifo_ns"], found["best_ns"]]
    text = [_ms(time) for time in shown]
    text[1] += f" ({named})"
    return [
        *name.split("/"),
        *text,
        found["winner"],
        f"{_ms(found['bound_ns'])} ({found['bound']})",
        _share(room(found)),
        _share(closed(found)),
    ]


def saved(found: Mapping[str, Cell]) -> str:
    """Of each graph on each cluster what `best` saves of the best heuristic's step, and the room, in hundredths; blank without room."""
    graphs, named = (list(dict.fromkeys(name.split("/")[place] for name in sorted(found))) for place in (0, 1))
    lines = [[graph, *(_saved(found.get(f"{graph}/{cluster}")) for cluster in named)] for graph in graphs]
    return results.markdown_table(["graph", *named], lines)


def _saved(found: Cell | None) -> str:
    if found is None or not has_room(found) or (most := room(found)) is None:
        return ""
    return f"{100 * (1 - found['best_ns'] / found['heuristic_ns']):.0f} of {100 * most:.0f}"


def summary(found: Mapping[str, Cell]) -> str:
    """How often `best` closes half of the room where there is some, and which planners lose to one device, and why."""
    roomy = [share for cell in found.values() if has_room(cell) and (share := closed(cell)) is not None]
    half = sum(share >= HALF for share in roomy)
    lines = [
        f"Of {len(found)} problems {len(roomy)} have room (the best heuristic takes at least {ROOM} times the bound); `best` closes half "
        f"of it or more in {half}, {statistics.median(roomy):.0%} in the median."
    ]
    return "\n".join([*lines, "", *(_explained(name, count, len(found)) for name, count in _slower(found).most_common())]) + "\n"


def _slower(found: Mapping[str, Cell]) -> Counter[str]:
    """On how many problems each planner is slower than the best single device, of those that are so on more than the share `SLOWER`."""
    counts = Counter(name for cell in found.values() for name in slower_than_one_device(cell["heuristics_ns"]))
    return Counter({name: count for name, count in counts.items() if count > SLOWER * len(found)})


def _explained(name: str, count: int, problems: int) -> str:
    return f"- `{name}` is slower than the best single device on {count} of {problems}: {EXPLANATIONS[name]}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _ms(time: int | None) -> str:
    return "-" if time is None else f"{time / 1e6:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=manifest.names(), help="graphs of the corpus; all by default")
    parser.add_argument("--clusters", nargs="*", default=clusters.names(), help="cluster presets; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="of `best`, on one core")
    parser.add_argument("--show", action="store_true", help="only the tables, of the rows that are there")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    chosen = parser.parse_args()
    jobs: dict[str, Job] = {
        f"{graph}/{preset}": (row, (graph, preset, chosen.seconds)) for graph in chosen.graphs for preset in chosen.clusters
    }
    found = results.load(PATH)["cells"] if chosen.show else cells.compute(PATH, jobs, {"seconds": chosen.seconds})
    whole = results.markdown_table(HEADER, [line(name, found[name]) for name in sorted(found)])
    table = "\n".join([whole, saved(found), summary(found)])
    PATH.with_suffix(".md").write_text(table)
    print(table)
    if chosen.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
