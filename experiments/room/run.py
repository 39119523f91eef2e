"""How much room is there? The best heuristic and the bound of each graph on each cluster; where there is room, what `best` finds then.

What lies between the best heuristic and the bound is the most that any policy can gain: the gate for every claim about learning.
A minute is one of a core's work, whatever else the machine does. Resumable: finished rows are kept.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from experiments import cells, output, results
from experiments.cells import Cell
from experiments.problems import heuristics, problem_of, time_ns
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest
from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.corpus import clusters, manifest
from gnnplace.corpus.manifest import Entry
from gnnplace.portfolio import portfolio
from gnnplace.portfolio.planners import BASELINES, slower_than_one_device
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

PATH = Path(__file__).resolve().parent / "results" / "room.json"
BEST = PATH.with_name("best.json")
SEED = 0
ROOM = 1.05  # a problem has room where the best heuristic takes at least so many times the bound
HALF = 0.5  # of what lies between the best heuristic and the bound: what `best` is asked for
COMPILING = 2000  # evaluations, so that every search of the portfolio is begun
SLOWER = 0.2  # the share of problems from which on a planner that loses to a single device is explained
HEADER = ["graph", "cluster", "one device", "best heuristic", "the same, fifo", "`best`", "its winner", "bound", "room", "closed"]


def row(graph: str, cluster: str) -> Cell:
    """What heuristics and bounds say of one graph on one cluster, in nanoseconds; a planner that finds nothing feasible has null."""
    problem = problem_of(graph, cluster)
    found = heuristics(problem)
    chosen = fastest(problem, list(found.values()), simulate)
    return {
        "heuristics_ns": {name: time_ns(problem, placement) for name, placement in found.items()},
        "heuristic_ns": time_ns(problem, chosen),
        "fifo_ns": time_ns(problem, replace(chosen, schedule="fifo")),
        "bound_ns": lower_bound(problem),
        "bound": bound_name(problem),
    }


@cache
def compiled() -> None:
    """Compiles what `best` runs, before time counts: it asks once, briefly, for the smallest graph."""
    smallest = min(manifest.entries(), key=lambda entry: entry.ops)
    portfolio.portfolio(problem_of(smallest.name, "mixed-4"), simulate, Budget(evaluations=COMPILING), portfolio.Options(seed=SEED))


def searched(problem: Problem, seconds: float) -> Cell:
    """What `best` finds in so many seconds of a core, null where that is nothing feasible, and its winner."""
    winner = portfolio.portfolio(problem, simulate, Budget(seconds=seconds, clock=worked_s), portfolio.Options(seed=SEED))
    return {"best_ns": time_ns(problem, winner.placement), "winner": winner.planner}


def worked_s() -> float:
    """The seconds for which a core has worked for this process and those that it started and waited for."""
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


def best(graph: str, cluster: str, seconds: float) -> Cell:
    """What `best` finds for one graph on one cluster."""
    compiled()
    return searched(problem_of(graph, cluster), seconds)


def known() -> dict[str, Cell]:
    """What has been computed; rows that were not searched have null for `best`."""
    found = {} if (computed := results.load(BEST)) is None else computed["cells"]
    return {name: cell | {"best_ns": None, "winner": "-"} | found.get(name, {}) for name, cell in results.load(PATH)["cells"].items()}


def room(found: Cell) -> float | None:
    """The share of the best heuristic's step that no placement is proved to need."""
    return None if found["heuristic_ns"] is None else 1 - found["bound_ns"] / found["heuristic_ns"]


def has_room(found: Cell) -> bool:
    """Whether the best heuristic takes at least `ROOM` times the bound."""
    return found["heuristic_ns"] is not None and found["heuristic_ns"] >= ROOM * found["bound_ns"]


def worth_a_search(found: Cell) -> bool:
    """Whether `best` is asked: where there is room, or no heuristic finds anything feasible."""
    return found["heuristic_ns"] is None or has_room(found)


def closed(found: Cell) -> float | None:
    """The share of what lies between the best heuristic and the bound by which `best` is faster; None where it was not asked."""
    heuristic_ns, bound_ns, best_ns = found["heuristic_ns"], found["bound_ns"], found["best_ns"]
    return None if None in (heuristic_ns, best_ns) or heuristic_ns == bound_ns else (heuristic_ns - best_ns) / (heuristic_ns - bound_ns)


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
    saved = "-" if found["best_ns"] is None else f"{100 * (1 - found['best_ns'] / found['heuristic_ns']):.0f}"
    return f"{saved} of {100 * most:.0f}"


def lineages(found: Mapping[str, Cell], entries: Iterable[Entry]) -> str:
    """Of each lineage and mode: how many problems, on how many of them some heuristic is feasible, how many have room, and how much."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    kinds = {entry.name: (entry.lineage, entry.mode) for entry in entries}
    for name, cell in found.items():
        groups.setdefault(kinds[name.split("/")[0]], []).append(cell)
    header = ["lineage", "mode", "problems", "feasible", "with room", "room, median"]
    return results.markdown_table(header, [[*kind, *_counts(group)] for kind, group in sorted(groups.items())])


def _counts(group: list[Cell]) -> list[str]:
    shares = [share for cell in group if (share := room(cell)) is not None]
    return [*map(str, (len(group), len(shares), sum(map(has_room, group)))), _share(statistics.median(shares) if shares else None)]


def summary(found: Mapping[str, Cell]) -> str:
    """How often `best` closes half of the room where there is some, and which planners lose to one device, and why."""
    roomy = [cell for cell in found.values() if has_room(cell)]
    shares = [share for cell in roomy if (share := closed(cell)) is not None]
    half = sum(share >= HALF for share in shares)
    lines = [
        f"Of {len(found)} problems {len(roomy)} have room (the best heuristic takes at least {ROOM} times the bound); `best`, asked on "
        f"{len(shares)} of them, closes half of it or more in {half}, {statistics.median(shares):.0%} in the median."
    ]
    return "\n".join([*lines, "", *(_explained(name, count, len(found)) for name, count in _slower(found).most_common())]) + "\n"


def _slower(found: Mapping[str, Cell]) -> Counter[str]:
    """On how many problems each planner is slower than the best single device, of those that are so on more than the share `SLOWER`."""
    counts = Counter(name for cell in found.values() for name in slower_than_one_device(cell["heuristics_ns"]))
    return Counter({name: count for name, count in counts.items() if count > SLOWER * len(found)})


def _explained(name: str, count: int, problems: int) -> str:
    return f"- `{name}` is slower than the best single device on {count} of {problems}: {BASELINES[name].slower}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _ms(time: int | None) -> str:
    return "-" if time is None else f"{time / 1e6:.2f}"


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--graphs", nargs="*", default=manifest.names(), help="graphs of the corpus; all by default")
    parser.add_argument("--clusters", nargs="*", default=clusters.names(), help="cluster presets; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a core, for `best` on each problem with room")
    parser.add_argument("--stage", choices=["heuristics", "best", "tables"], default="best", help="where to end; tables: compute nothing")
    chosen = parser.parse_args()
    asked = [(graph, preset) for graph in chosen.graphs for preset in chosen.clusters]
    if chosen.stage != "tables":
        cells.compute(PATH, {"/".join(problem): (row, problem) for problem in asked}, {})
    if chosen.stage == "best":
        roomy = [problem for problem in asked if worth_a_search(known()["/".join(problem)])]
        cells.compute(BEST, {"/".join(problem): (best, (*problem, chosen.seconds)) for problem in roomy}, {"seconds": chosen.seconds})
    found = known()
    whole = results.markdown_table(HEADER, [line(name, found[name]) for name in sorted(found)])
    table = "\n".join([whole, saved(found), lineages(found, manifest.entries()), summary(found)])
    output.show(table, found, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
