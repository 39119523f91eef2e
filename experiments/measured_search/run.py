"""Where an evaluation is a real step: does the improver find a faster placement with 32 of them than hill climbing does?

    python -m experiments.measured_search.run [WORKLOAD ...] [--evaluations N] [--seeds N]
    python -m experiments.measured_search.run --figures                       # of what there is

Each cell is a workload of `fidelity` and a seed. Both searches begin on one core alone and have so many measured steps; neither simulates a
placement before it is measured. What each found is then measured once more, in turns, beside what the learned search finds with as many
simulated steps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import results
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.execution.evaluator import LastingHost, MeasuredEvaluator
from gnnplace.execution.host import Host
from gnnplace.execution.ledger import Ledger
from gnnplace.execution.profile import hardware
from gnnplace.execution.timing import PAPER, estimate, ratio
from gnnplace.moves.ranking import read_ranking
from gnnplace.placement import Placement
from gnnplace.portfolio.searches import HELD_OUT, improved
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER

HERE = Path(__file__).resolve().parent
WORKLOADS = ("two_tower", "dlrm_clicks", "mixture_of_experts", "gru_language", "deep_speech_2")
METHODS = ("learned", "hill-climb")
SIMULATED = "simulated"  # the learned search with as many simulated steps, of which only the winner is measured
LIMIT_S = 120.0


def cell(workload: str, seed: int, evaluations: int, folder: Path) -> dict[str, Any]:
    """What each method found: its best measured step time after 8, 16, ... evaluations, and in turns with the others at the end."""
    step, machine, costs = f"experiments.fidelity.torch_workloads:{workload}", folder / "here.json", folder / f"{workload}.json"
    if not machine.exists():
        _gnnplace("calibrate", step, "-o", machine)
    if not costs.exists():
        _gnnplace("profile", step, "--cluster", machine, "-o", costs)
    host = LastingHost(partial(Host, LOADER, step, seed, limit_s=LIMIT_S))
    try:
        problem = sources.costed(host().graph, sources.cluster(str(machine)), str(costs), print, print)
        ledgers = {name: Ledger(folder / f"{workload}-{seed}-{name}.jsonl") for name in METHODS}
        measured = {name: _evaluator(problem, host, ledger) for name, ledger in ledgers.items()}
        found = {name: _search(name, problem, measured[name], seed, evaluations) for name in METHODS}
        found[SIMULATED] = _search("learned", problem, simulate, seed, evaluations)
        times = measured["learned"].compare(problem, list(found.values()), f"in turns {seed}")
    finally:
        host.close()
    again = dict(zip(found, times, strict=True))
    alone = _search("hill-climb", problem, measured["hill-climb"], seed, 1)
    (alone_ns,) = (result.step_time_ns for result in measured["hill-climb"](problem, [alone]))
    return {
        "ops": problem.num_ops, "alone_ns": alone_ns, "curves_ns": {name: _curve(ledger) for name, ledger in ledgers.items()},
        "again_ns": {name: estimate(step_ns)._asdict() for name, step_ns in again.items()},
        "over_hill_climb": {name: ratio(step_ns, again["hill-climb"])._asdict() for name, step_ns in again.items()},
        "hardware": hardware(), "provenance": results.provenance(HERE),
    }  # fmt: skip


def _evaluator(problem: Problem, host: LastingHost, ledger: Ledger) -> MeasuredEvaluator:
    return MeasuredEvaluator({problem.graph.sha256: host}, simulate, ledger, PAPER, LIMIT_S, hardware())


def _search(method: str, problem: Problem, evaluate: Evaluator, seed: int, evaluations: int) -> Placement:
    start, budget = _alone(problem), Budget(evaluations=evaluations)
    if method == "learned":
        return improved(problem, evaluate, read_ranking(HELD_OUT), seed, budget, start)
    return hill_climb(problem, evaluate, np.random.default_rng(seed), start=start, budget=budget)


def _alone(problem: Problem) -> Placement:
    return Placement(np.full(problem.num_ops, int(problem.time_ns.sum(axis=0).argmin()), dtype=np.int32))


def _curve(ledger: Ledger) -> list[int | None]:
    """The best step time after each measured placement."""
    medians = [float(np.median(record["step_ns"])) if record["outcome"] == "ok" else np.inf for record in ledger if "device" in record]
    return [int(best) if np.isfinite(best) else None for best in np.minimum.accumulate(medians)]


def _gnnplace(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "gnnplace", *map(str, arguments)], check=True)


def table(found: dict[str, Any]) -> str:
    """A line for each cell, and the geometric means."""
    names = [*METHODS, SIMULATED]
    rows = []
    for name, each in found.items():
        over = each["over_hill_climb"]
        ratios = [f"{over[key]['median']:.3f} [{over[key]['low']:.3f}, {over[key]['high']:.3f}]" for key in names if key != "hill-climb"]
        rows.append([name, f"{each['alone_ns'] / 1e6:.1f}", f"{each['again_ns']['hill-climb']['median'] / 1e6:.1f}", *ratios])
    means = [
        f"**{np.exp(np.mean([np.log(each['over_hill_climb'][key]['median']) for each in found.values()])):.3f}**"
        for key in names
        if key != "hill-climb"
    ]
    header = ["workload / seed", "one core, ms", "hill climbing, ms", *(f"{key} / hill climbing" for key in names if key != "hill-climb")]
    return results.markdown_table(header, [*rows, ["geometric mean", "", "", *means]])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures what is missing and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--evaluations", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--figures", action="store_true", help="measure nothing")
    parser.add_argument("--folder", type=Path, help="where measurements are kept, and found again; a temporary folder unless given")
    chosen = parser.parse_args(arguments)
    path = HERE / "results" / "measured_search.json"
    found = results.load(path)
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for seed in [] if chosen.figures else range(chosen.seeds):
            for workload in chosen.workloads:
                if (name := f"{workload} / {seed}") not in found:
                    found[name] = cell(workload, seed, chosen.evaluations, folder)
                    results.save(path, found)
    print(table(found))


if __name__ == "__main__":
    main()
