"""How far are planners from the proved optimum? Layered random graphs of 20-40 ops on 2-4 devices, against CP-SAT.

    python -m experiments.optimality.run [--seeds N] [--solve SECONDS]

Cells are computed one process a core and kept: what is there is not computed again. Everything is counted in work, so that the same
figures come out on every machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import results
from experiments.cells import Cell, compute
from experiments.optimality.graphs import Kind, drawn, kinds
from gnnplace.baselines.annealing import annealing
from gnnplace.baselines.cp_sat.exact import Limit, Start, solve
from gnnplace.baselines.single import fastest
from gnnplace.bounds.bounds import bound_name, least_times, lower_bound
from gnnplace.placement import Placement
from gnnplace.portfolio import planners, portfolio
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

HERE = Path(__file__).resolve().parent
SEED, RESAMPLES = 0, 10_000
BEST, RULED, ANNEALING, LONGER = "best", "best, critical-path schedule", "annealing alone", "the same with the proof's time"
BOUND = "lower bound"


def measured(kind: Kind, seed: int, solve_s: float) -> Cell:
    """What every planner takes on one problem, in ns (None: nothing feasible), and what CP-SAT proves from the best of them."""
    posed = drawn(kind, seed)
    found = {name: plan(posed) for name, plan in planners.planners(posed, simulate, SEED).items()}
    start, generator = planners.best_heuristic(posed, simulate), np.random.default_rng(SEED)
    found[ANNEALING] = annealing(posed, simulate, generator, start=start, budget=portfolio.budget(posed))
    found[RULED] = portfolio.portfolio(
        posed, simulate, portfolio.budget(posed), portfolio.Options(seed=SEED, schedule="critical-path")
    ).placement
    winner = portfolio.portfolio(posed, simulate, portfolio.budget(posed), portfolio.Options(seed=SEED))
    found[BEST] = winner.placement
    times = {name: simulate(posed, [placement])[0].feasible_ns for name, placement in found.items()}
    begin = fastest(posed, list(found.values()), simulate)
    solved = solve(posed, Limit(solve_s), start=_start(posed, begin), least=least_times(posed))
    return kind._asdict() | {
        "seed": seed, "winner": winner.planner, "times_ns": times, "bound_ns": int(lower_bound(posed)), "bound": bound_name(posed),
        "proved": solved.proved, "program_ns": solved.step_time_ns, "program_bound_ns": solved.bound_ns,
        "program_simulated_ns": None if solved.placement is None else _fastest_ns(posed, solved.placement),
    }  # fmt: skip


def _start(problem: Problem, placement: Placement) -> Start:
    return Start(placement.device, simulate(problem, [placement], timeline=True)[0])


def _fastest_ns(problem: Problem, placement: Placement) -> int | None:
    """The program's devices, simulated: in its own order, or under the critical-path schedule."""
    rows = simulate(problem, [placement, Placement(placement.device)])
    return min((row.feasible_ns for row in rows if row.feasible_ns is not None), default=None)


def gaps(cells: Sequence[Cell], name: str) -> list[float]:
    """How much longer than the proved optimum, as a share, where it is proved and the planner found something feasible."""
    times = [(_ns(cell, name), cell["program_bound_ns"]) for cell in cells if cell["proved"]]
    return [time / optimum - 1 for time, optimum in times if time is not None]


def _ns(cell: Cell, name: str) -> int | None:
    """A planner's step time; `LONGER` is the fastest of all and of what CP-SAT's proof found, simulated: it began there."""
    if name == BOUND:
        return int(cell["bound_ns"])
    if name == LONGER:
        return min((time for time in (*cell["times_ns"].values(), cell["program_simulated_ns"]) if time is not None), default=None)
    return cell["times_ns"].get(name)


def table(cells: Sequence[Cell]) -> str:
    """A line for each planner, nearest to the optimum first: gaps of all proved problems, and the means of parts of them."""
    parts: dict[str, Callable[[Cell], bool]] = {
        "all": lambda cell: True,
        "20 ops": lambda cell: cell["ops"] == 20, "30": lambda cell: cell["ops"] == 30, "40": lambda cell: cell["ops"] == 40,
        "2 devices": lambda cell: cell["devices"] == 2, "3": lambda cell: cell["devices"] == 3, "4": lambda cell: cell["devices"] == 4,
        "ratio 0.2": lambda cell: cell["ratio"] == 0.2, "1": lambda cell: cell["ratio"] == 1, "5": lambda cell: cell["ratio"] == 5,
        "equal": lambda cell: not cell["unequal"], "unequal": lambda cell: cell["unequal"], "tight": lambda cell: cell["tight"],
    }  # fmt: skip
    chosen = {part: [cell for cell in cells if inside(cell)] for part, inside in parts.items()}
    names = sorted(
        {LONGER, *(name for cell in cells for name in cell["times_ns"])}, key=lambda name: (len(gaps(cells, name)) == 0, _mean(cells, name))
    )
    proved = [f"{sum(cell['proved'] for cell in part)} of {len(part)}" for part in chosen.values()]
    lines = [["*proved*", "", "", "", *proved]]
    for name in [*names, BOUND]:
        worst = "-" if not (all_gaps := gaps(cells, name)) else _percent(min(all_gaps) if name == BOUND else max(all_gaps))
        shown = [_percent(_mean(part, name)) for part in chosen.values()]
        lines.append([name, str(len(all_gaps)), _interval(all_gaps), worst, *shown])
    return results.markdown_table(["", "feasible", "95 % interval", "worst", *parts], lines)


def _mean(cells: Sequence[Cell], name: str) -> float:
    found = gaps(cells, name)
    return float(np.mean(found)) if found else float("nan")


def _interval(values: Sequence[float]) -> str:
    """The percentile-bootstrap interval of a mean."""
    if not values:
        return "-"
    array = np.array(values)
    drawn_means = array[np.random.default_rng(SEED).integers(len(array), size=(RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.percentile(drawn_means, (2.5, 97.5))
    return f"{_percent(low)} ... {_percent(high)}"


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.2f} %"


def main(arguments: Sequence[str] | None = None) -> None:
    """Computes what is missing, saves and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="problems of each kind")
    parser.add_argument("--solve", type=float, default=10.0, help="seconds of CP-SAT's work for a proof")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    chosen = parser.parse_args(arguments)
    jobs: dict[str, Any] = {
        f"{kind.name}, seed {seed}": (measured, (kind, seed, chosen.solve)) for seed in range(chosen.seeds) for kind in kinds()
    }
    settings = {"solve_s": chosen.solve, "exact_s": planners.EXACT_S, "order_s": portfolio.ORDER_S, "seed": SEED}
    cells = compute(chosen.results / "optimality.json", jobs, settings)
    text = table([cells[name] for name in jobs if name in cells])
    (chosen.results / "optimality.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
