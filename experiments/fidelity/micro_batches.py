"""Does the simulator say what steps of several micro-batches take? As people run them and as planned, on two pinned CPU devices.

    python -m experiments.fidelity.micro_batches [--workloads ...]    # measures what is missing, then prints the figures
    python -m experiments.fidelity.micro_batches --figures         # of what there is

One batch in 1, 2, 4 and 8 micro-batches: on one core, by DDP, by three schedules of pipelines, and by `best`. All plans of a step are
measured in the same turns as the times of ops, each core alone and both at the same time, in each form of the step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from experiments import results
from experiments.fidelity.figures import TURN_STEPS
from experiments.fidelity.measuring import LIMIT_S, NUM_CORES, SEED, TURNS, machine, named, on_each_core, peaks, simulated, together
from experiments.fidelity.micro_batch_workloads import WORKLOADS
from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs import links
from gnnplace.costs import measured as measured_costs
from gnnplace.execution.host import Host
from gnnplace.execution.machine import cores
from gnnplace.execution.measure import CHECKED_STEPS, difference, first_device, planned
from gnnplace.execution.profile import Profiler, profile
from gnnplace.execution.timing import LoadMeter, in_turns, warm_up
from gnnplace.placement import Placement
from gnnplace.portfolio import forms
from gnnplace.portfolio.comparison import best
from gnnplace.portfolio.planners import PIPELINES
from gnnplace.portfolio.portfolio import Options
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources.workload import LOADER, MICRO_BATCH_LOADER
from gnnplace.transformations.parallelism import Parallelism

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "micro_batches.json"
NUMBERS = (1, 2, 4, 8)
SCHEDULES = ("gpipe", "1f1b", "zb-h1")
STEPS, PROFILED_STEPS, SECONDS = 20, 10, 10.0
ERROR, APART, ORDERED, CHOICE = 0.10, 0.05, 0.90, 1.05  # the bars


class Planned(NamedTuple):
    """A placement of a step in the form that its problem has."""

    problem: Problem
    placement: Placement


def plans(problem: Problem) -> Iterator[tuple[str, Planned]]:
    """What people do with a step of a problem, and what `best` plans."""
    yield "one core", Planned(problem, first_device(problem))
    if problem.graph.micro_batches > 1:
        rule = forms.by_rule("ddp", problem, simulate)
        yield "ddp", Planned(rule.form or problem, rule.placement)
        for name in SCHEDULES:
            yield name, Planned(problem, PIPELINES[name](problem, evaluate=simulate))
    winner = best(problem, Budget(seconds=SECONDS), Options(forms=True))
    yield "best", Planned(winner.form or problem, winner.placement)


def measured(workload: str, number: int, steps: int) -> dict[str, Any]:
    """Everything that was measured of one workload in so many micro-batches, and what the simulator says of it."""
    began, meter, source = monotonic(), LoadMeter(), f"experiments.fidelity.micro_batch_workloads:{workload}_{number}"
    with Host(MICRO_BATCH_LOADER, source, SEED, limit_s=LIMIT_S) as host:
        costs = profile(host, cores("cores", NUM_CORES), PROFILED_STEPS)
    cluster = links.measured(machine("torch"), [costs])
    with Host(LOADER, source, SEED, limit_s=LIMIT_S) as host:
        problem = measured_costs.problem(host.graph, cluster, costs)
        chosen = dict(plans(problem))
        rows = _in_turns(host, source, cluster, chosen, steps)
    return {
        "workload": workload, "micro_batches": number, "ops": problem.num_ops, "rows": rows,
        "load": meter.load()._asdict(), "seconds": round(monotonic() - began),
    }  # fmt: skip


def _in_turns(host: Host, source: str, cluster: Any, chosen: Mapping[str, Planned], steps: int) -> dict[str, Any]:
    """All plans measured in the same turns as profiles of every form: each core alone, and both at the same time."""
    rows: dict[str, Any] = {}
    execution = {name: planned(*each) for name, each in chosen.items()}
    kinds = list(dict.fromkeys(plan.form for plan in execution.values()))
    with ExitStack() as stack:
        beside = [stack.enter_context(each) for each in on_each_core(lambda: Host(LOADER, source, SEED, limit_s=LIMIT_S))]
        alone = {form: [Profiler(host, cluster.devices, works, form) for works in range(NUM_CORES)] for form in kinds}
        both = {form: [Profiler(each, cores("cores", 1).devices, form=form) for each in beside] for form in kinds}
        running = {}
        for name, plan in execution.items():
            with named(name):
                step = running[name] = host.start(plan)
                stack.callback(step.close)
                step.run(CHECKED_STEPS - len(step.outputs().losses))
                rows[name] = {"difference": vars(difference(step.outputs(), *host.unplaced(CHECKED_STEPS, "cpu", plan.form)))}
        profilers = [each for form in kinds for each in (*alone[form], *both[form])]
        for step in (*running.values(), *(profiler.step for profiler in profilers)):
            warm_up(step.run, TURNS)
        runs = [step.run for step in running.values()]
        runs += [run for form in kinds for run in (*(each.run for each in alone[form]), together(both[form]))]
        times, counted, stolen = in_turns(runs, replace(TURNS, steps=steps))
        rest = iter(counted[len(running) :])
        op_ns, slowdown = {}, {}
        for form in kinds:
            windows = [next(rest) for _ in range(NUM_CORES + 1)]
            op_ns[form] = np.stack([each.op_ns(own) for each, own in zip(alone[form], windows, strict=False)], axis=1)
            slower = np.stack([each.op_ns(windows[-1]) for each in both[form]], axis=1)
            slowdown[form] = np.maximum(1.0, slower / np.maximum(1, op_ns[form]))
        for (name, plan), step_ns, windows, taken in zip(execution.items(), times, counted, stolen, strict=False):
            rows[name] |= {"step_ns": step_ns, "stolen": float(np.mean([taken[window] for window in windows]))}
            rows[name] |= simulated(host.as_run(plan), plan, cluster, op_ns[plan.form], slowdown[plan.form])
            rows[name] |= {"peak_memory_bytes": peaks(running[name]), "form": (plan.form or Parallelism()).knobs()}
    return rows


def figures(cells: Mapping[str, Any]) -> str:
    """Tables: the figures of each workload and number of micro-batches, and the steps."""
    header = [
        "workload",
        "M",
        "median error",
        "largest",
        "pairs apart",
        "in the measured order",
        "choice / best",
        "best of people / `best`",
    ]
    lines, steps, errors, pairs = [], [], list[float](), list[bool]()
    for cell in cells.values():
        rows = {name: (float(np.median(row["step_ns"])), float(row["simulated_ns"])) for name, row in cell["rows"].items()}
        wrong = [abs(simulated - real) / real for real, simulated in rows.values()]
        apart = [pair for pair in combinations(rows.values(), 2) if max(_ratio(pair, 1), 1 / _ratio(pair, 1)) > 1 + APART]
        right = [(_ratio(pair, 0) > 1) == (_ratio(pair, 1) > 1) for pair in apart]
        choice = min(rows.values(), key=lambda pair: pair[1])[0] / min(real for real, _ in rows.values())
        people = min(real for name, (real, _) in rows.items() if name != "best")
        errors, pairs = errors + wrong, pairs + right
        lines.append([
            cell["workload"], str(cell["micro_batches"]), f"{np.median(wrong):.1%}", f"{max(wrong):.1%}", str(len(apart)),
            f"{sum(right)}", f"{choice:.3f}", f"{people / rows['best'][0]:.3f}",
        ])  # fmt: skip
        steps.append(
            [cell["workload"], str(cell["micro_batches"]), *(_shown(rows.get(name)) for name in ("one core", "ddp", *SCHEDULES, "best"))]
        )
    overall = (
        f"All {len(errors)} plans: median error {np.median(errors):.1%}; of {len(pairs)} pairs that differ by over {APART:.0%} in the "
        f"simulator {np.mean(pairs):.1%} stand in the measured order.\n"
    )
    names = ["workload", "M", "one core", "DDP", "GPipe", "1F1B", "ZB-H1", "`best`"]
    return "\n".join([overall, results.markdown_table(header, lines), results.markdown_table(names, steps)])


def _ratio(pair: tuple[tuple[float, float], tuple[float, float]], which: int) -> float:
    return pair[0][which] / pair[1][which]


def _shown(row: tuple[float, float] | None) -> str:
    return "-" if row is None else f"{row[0] / 1e6:.1f} ({row[1] / row[0]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=tuple(WORKLOADS), default=tuple(WORKLOADS))
    parser.add_argument("--micro-batches", nargs="+", type=int, choices=NUMBERS, default=NUMBERS)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each plan; {STEPS} unless given")
    parser.add_argument("--figures", action="store_true", help="measure nothing")
    chosen = parser.parse_args()
    document = results.load(RESULTS) or {"cells": {}}
    for workload in () if chosen.figures else chosen.workloads:
        for number in chosen.micro_batches:
            if (key := f"{workload}/{number}") not in document["cells"]:
                document["cells"][key] = measured(workload, number, max(chosen.steps, TURN_STEPS)) | {
                    "provenance": results.provenance(HERE)
                }
                results.save(RESULTS, document)
                print(key, document["cells"][key]["seconds"], "s", flush=True)
    (RESULTS.with_suffix(".md")).write_text(text := figures(document["cells"]))
    print(text)


if __name__ == "__main__":
    main()
