"""How long do planners take? Seconds on one core for random training-step-like graphs on one CPU and three GPUs, beside their bars.

    python -m benchmarks.planner_speed.run [--repeats N] [PLANNER ...]

Each planner's time is that of one call on units `ops` (METIS and Scotch with one seed), its own evaluations included, after a call on a
small graph that compiles. Planners take turns; the median counts, with the fastest beside it. `best` gets ten seconds and is timed by the
clock on the wall.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.simulator_speed import workload
from experiments import results
from gnnplace.baselines.baechi import m_etf, m_sct, m_topo
from gnnplace.baselines.cpop import critical_path_first
from gnnplace.baselines.heft import heft
from gnnplace.baselines.metis import metis
from gnnplace.baselines.peft import peft
from gnnplace.baselines.pipeline import pipeline
from gnnplace.baselines.scotch import scotch
from gnnplace.baselines.searching.budget import Budget
from gnnplace.portfolio import planners, portfolio
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

HERE = Path(__file__).resolve().parent
SEED, SMALL, BUDGET_S = 0, 500, 10.0
CLOCKS: dict[bool, Callable[[], float]] = {False: time.process_time, True: time.perf_counter}


class Row(NamedTuple):
    """A planner, the size of its graph, the seconds that it may take (None: no bar), and whether the wall's clock counts."""

    plan: Callable[[Problem], object]
    ops: int
    bar_s: float | None = None
    wall: bool = False


def rows() -> dict[str, Row]:
    """Every row of the table."""
    lists = {"HEFT": heft, "m-ETF": m_etf, "PEFT": peft, "critical-path-first": critical_path_first, "m-TOPO": m_topo}
    barred = ("HEFT", "m-ETF")
    found: dict[str, Row] = {}
    for name, plan in lists.items():
        for ops, bar_s in ((10_000, 0.2), (100_000, 3.0)):
            found[f"{name}, {ops:,} ops"] = Row(partial(plan, evaluate=simulate, units_name="ops"), ops, bar_s if name in barred else None)
    found["m-SCT, 10,000 ops"] = Row(partial(m_sct, evaluate=simulate, units_name="ops"), 10_000, 5.0)
    found["pipeline, 10,000 ops"] = Row(partial(pipeline, evaluate=simulate), 10_000)
    found["METIS, 50,000 ops"] = Row(partial(metis, evaluate=simulate, units_name="ops", seeds=1), 50_000, 0.5)
    if not planners.missing():
        found["Scotch, 50,000 ops"] = Row(partial(scotch, evaluate=simulate, units_name="ops", seeds=1), 50_000, 1.0)
    found["best, 10,000 ops, 10 s"] = Row(_best, 10_000, 1.05 * BUDGET_S, wall=True)
    return found


def _best(problem: Problem) -> object:
    return portfolio.portfolio(
        problem,
        simulate,
        Budget(seconds=BUDGET_S if problem.num_ops > SMALL else 0.1),
        portfolio.Options(seed=SEED, schedule="critical-path"),
    )


def timed(chosen: dict[str, Row], repeats: int) -> dict[str, list[float]]:
    """Seconds of each planner, in turns."""
    problems = {ops: workload.problem(ops, np.random.default_rng(SEED)) for ops in {SMALL, *(row.ops for row in chosen.values())}}
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for row in chosen.values():
        row.plan(problems[SMALL])
    for _ in range(repeats):
        for name, row in chosen.items():
            now = CLOCKS[row.wall]
            start = now()
            row.plan(problems[row.ops])
            seconds[name].append(now() - start)
    return seconds


def table(document: dict[str, Any]) -> str:
    """A line for each planner."""
    lines = []
    for name, found in document["planners"].items():
        bar = "" if found["bar_s"] is None else f"{found['bar_s']:g} s{'' if median(found['seconds']) <= found['bar_s'] else ', missed'}"
        lines.append([name, f"{median(found['seconds']):.3f} s", f"{min(found['seconds']):.3f} s", bar])
    return results.markdown_table(["planner", "median", "fastest", "at most"], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Times the planners, saves and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planners", nargs="*", help="rows whose names begin so; all unless given")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    chosen = parser.parse_args(arguments)
    wanted = {name: row for name, row in rows().items() if not chosen.planners or name.startswith(tuple(chosen.planners))}
    seconds = timed(wanted, chosen.repeats)
    found = {name: {"seconds": seconds[name], "bar_s": row.bar_s, "ops": row.ops} for name, row in wanted.items()}
    document = {"planners": found, "provenance": results.provenance(HERE)}
    results.save(chosen.results / "planner_speed.json", document)
    print(table(document))


if __name__ == "__main__":
    main()
