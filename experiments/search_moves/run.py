"""Re-simulate a move from where it first matters, simulate moves in parallel, or leave slow ones off: which is faster?

    python -m experiments.search_moves.run [--moves N] [--repeats N] [GRAPH/CLUSTER ...]

Moves are drawn as annealing draws them, from METIS's placement. For each: the share of the events of the step (starts and ends of ops and
transfers) that lie before the first one that differs. No simulation that starts again from a checkpoint can save more than that. Beside it,
how much faster a batch is on all cores than on one, and one whose steps are left off where they are longer than the step at hand than whole
ones, at the fastest of the repeats in turns. Seconds depend on what else runs: the load is kept.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from experiments import results
from experiments.problems import problem_of
from gnnplace.baselines.annealing import TOGETHER
from gnnplace.moves.drawing import draw, guide
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.placement import Placement, Schedule
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.result import StepResult, Timeline
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.simulator.simulator import simulate, simulate_devices, usable_cores

HERE = Path(__file__).resolve().parent
PROBLEMS = ("inception-v3-b32/k40-2", "rnnlm-2/k40-2", "nmt-2/k40-2", "bert-base/mixed-4")
SCHEDULES: tuple[Schedule, ...] = ("critical-path", "fifo")
SEED, BATCHES = 0, (4, 16)
HEADER = ["graph", "cluster", "schedule", "unchanged, mean", "median", "9 of 10 below", "from a checkpoint, at most", "left off"]


def drawn(problem: Problem, start: Placement, count: int) -> list[Placement]:
    """The placement at hand, then moves from it; none that changes nothing."""
    around, generator = neighbourhood(problem), np.random.default_rng(SEED)
    device = around.start(start)
    found = [around.placement(device, start.schedule)]
    (result,) = simulate(problem, found, timeline=True)
    assert result.timeline is not None
    where = guide(around, device, result.peak_memory_bytes, chain_ns(problem, found[0].device, result.timeline))
    while len(found) <= count:
        there = draw(around, device, where, generator, 1).after(0, device)
        if not np.array_equal(there, device):
            found.append(around.placement(there, start.schedule))
    return found


def unchanged(here: tuple[Placement, StepResult], there: tuple[Placement, StepResult]) -> float:
    """The share of the events of a step that lie before the first that is another one."""
    (a, before), (b, after) = ((placement, result.timeline) for placement, result in (here, there))
    assert before is not None and after is not None
    differs = (a.device != b.device) | (before.start_ns != after.start_ns) | (before.end_ns != after.end_ns)
    first = [np.minimum(before.start_ns, after.start_ns)[differs].min(initial=np.iinfo(np.int64).max)]
    rows, counts = np.unique(np.concatenate([_sent(before), _sent(after)]), axis=0, return_counts=True)
    first.append(rows[counts == 1, 0].min(initial=np.iinfo(np.int64).max))
    times = np.concatenate([before.start_ns, before.end_ns, before.transfer_start_ns, before.transfer_end_ns])
    return float(np.mean(times < min(first)))


def _sent(timeline: Timeline) -> Int64[np.ndarray, "transfers 5"]:
    """Every transfer: its start and end, what it carries, from where to where."""
    columns = (timeline.transfer_start_ns, timeline.transfer_end_ns, timeline.transfer_output, timeline.transfer_src, timeline.transfer_dst)
    return np.stack([column.astype(np.int64) for column in columns], axis=1)


def faster_together(problem: Problem, placements: Sequence[Placement], repeats: int) -> dict[str, float]:
    """How many times as fast a batch of each size is on all cores as on one."""
    found = {}
    for size in BATCHES:
        device, schedule, seconds = np.stack([each.device for each in placements[:size]]), placements[0].schedule, []
        for threads in (1, usable_cores()):
            taken = []
            for _ in range(repeats):
                start = time.perf_counter()
                simulate_devices(problem, device, schedule, threads=threads)
                taken.append(time.perf_counter() - start)
            seconds.append(min(taken))
        found[str(size)] = seconds[0] / seconds[1]
    return found


def faster_left_off(problem: Problem, placements: Sequence[Placement], limit_ns: int | None, repeats: int) -> float:
    """How many times as fast all placements are where steps beyond a limit are left off."""
    seconds: dict[int | None, list[float]] = {None: [], limit_ns: []}
    for _ in range(repeats):
        for limit in seconds:
            start = time.perf_counter()
            for low in range(0, len(placements), TOGETHER):
                simulate(problem, placements[low : low + TOGETHER], limit_ns=limit)
            seconds[limit].append(time.perf_counter() - start)
    return min(seconds[None]) / min(seconds[limit_ns])


def row(problem: Problem, start: Placement, count: int, repeats: int) -> dict[str, Any]:
    """The figures of one problem under one schedule."""
    placements = drawn(problem, start, count)
    here, *others = zip(placements, simulate(problem, placements, timeline=True), strict=True)
    return {
        "unchanged": [unchanged(here, other) for other in others],
        "faster_together": faster_together(problem, placements, repeats),
        "faster_left_off": faster_left_off(problem, placements[1:], here[1].step_time_ns, repeats),
        "load": os.getloadavg()[0],
    }


def run(names: Sequence[str], count: int, repeats: int) -> dict[str, Any]:
    """Every row, by graph, cluster and schedule."""
    found = {}
    for name in names:
        problem = problem_of(*name.split("/"))
        start = planners.planner("metis", simulate, SEED)(problem)
        for schedule in SCHEDULES:
            found[f"{name}/{schedule}"] = row(problem, Placement(start.device, schedule), count, repeats)
    return {"rows": found, "moves": count, "cores": usable_cores(), "provenance": results.provenance(HERE)}


def table(document: dict[str, Any]) -> str:
    """A line for each problem and schedule."""
    lines = []
    for name, found in document["rows"].items():
        shares = found["unchanged"]
        figures = [f"{100 * value:.0f} %" for value in (np.mean(shares), np.median(shares), np.quantile(shares, 0.9))]
        gains = (1 / (1 - float(np.mean(shares))), found["faster_left_off"], *found["faster_together"].values())
        lines.append([*name.split("/"), *figures, *(f"{gain:.2f}x" for gain in gains)])
    return results.markdown_table([*HEADER, *(f"{count} at once, {document['cores']} cores" for count in BATCHES)], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, saves and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", default=PROBLEMS, metavar="GRAPH/CLUSTER")
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    chosen = parser.parse_args(arguments)
    document = run(chosen.problems, chosen.moves, chosen.repeats)
    results.save(chosen.results / "search_moves.json", document)
    print(table(document))


if __name__ == "__main__":
    main()
