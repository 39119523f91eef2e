"""How fast is the simulator? Placements a second on one core and on all, and how time per op grows with the graph.

Every figure is the median over repeats of random placements, with the fastest repeat beside it; one core and all cores
take turns, so that a busy machine slows both alike. One core counts the thread's own time, all cores count wall time; the
processor time of both tells what the speed-up would be on a machine that does nothing else. Arithmetic that touches no memory is
measured in the same way: what it gains on all cores is the most that this machine gives.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, no_type_check

import numba
import numpy as np
from jaxtyping import Int32

from benchmarks.simulator_speed import workload
from experiments import output, results
from gnnplace.placement import Schedule
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate_devices, usable_cores

HERE = Path(__file__).resolve().parent
SCHEDULES: tuple[Schedule, ...] = ("fifo", "critical-path")
SAMPLES = {10_000: 48, 100_000: 8}
SEED = 0


@numba.njit(nogil=True)
@no_type_check
def arithmetic(rounds: int) -> int:
    """Work for one core that touches no memory."""
    value = 1
    for _ in range(rounds):
        value = value * 6364136223846793005 + 1442695040888963407
    return value


def speedup_of_arithmetic(repeats: int) -> float:
    """How many times faster than one core all cores do arithmetic."""
    cores, rounds, one, every = usable_cores(), 20_000_000, [], []
    arithmetic(1)
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(repeats):
            for times, run in ((one, map), (every, pool.map)):
                start = time.perf_counter_ns()
                list(run(arithmetic, [rounds] * cores))
                times.append(time.perf_counter_ns() - start)
    return round(median(one) / median(every), 2)


def figures(problem: Problem, device: Int32[np.ndarray, "samples ops"], schedule: Schedule, repeats: int) -> dict[str, Any]:
    """Nanoseconds a placement on one core and on all, after one run that compiles."""
    cores = usable_cores()
    simulate_devices(problem, device[:1], schedule)
    own, one, every, work = [], [], [], []
    for _ in range(repeats):
        wall, thread = time.perf_counter_ns(), time.thread_time_ns()
        steps = simulate_devices(problem, device, schedule, threads=1)
        own.append((time.thread_time_ns() - thread) / len(device))
        one.append((time.perf_counter_ns() - wall) / len(device))
        wall, process = time.perf_counter_ns(), time.process_time_ns()
        simulate_devices(problem, device, schedule, threads=cores)
        every.append((time.perf_counter_ns() - wall) / len(device))
        work.append((time.process_time_ns() - process) / len(device))
    return {
        "transfers": int(np.median(steps.transfers)),
        "ns_one_core": round(median(own)),
        "ns_one_core_fastest": round(min(own)),
        "placements_per_s_one_core": round(1e9 / median(own), 1),
        "ns_per_op": round(median(own) / problem.num_ops, 1),
        "placements_per_s_all_cores": round(1e9 / median(every), 1),
        "speedup_all_cores": round(median(one) / median(every), 2),
        "speedup_all_cores_fastest": round(min(one) / min(every), 2),
        "speedup_by_processor_time": round(cores * median(own) / median(work), 2),
    }


def run(repeats: int) -> dict[str, Any]:
    """All sizes and schedules, and the ratio of times per op."""
    rng = np.random.default_rng(SEED)
    document: dict[str, Any] = {"cores": usable_cores(), "repeats": repeats, "speedup_of_arithmetic": speedup_of_arithmetic(repeats)}
    for num_ops, samples in SAMPLES.items():
        problem = workload.problem(num_ops, rng)
        device = rng.integers(0, problem.num_devices, (samples, num_ops), dtype=np.int32)
        document[str(num_ops)] = {"ops": num_ops, "edges": problem.graph.num_edges, "devices": problem.num_devices, "placements": samples}
        document[str(num_ops)] |= {schedule: figures(problem, device, schedule, repeats) for schedule in SCHEDULES}
    small, large = (document[str(num_ops)] for num_ops in SAMPLES)
    for name in ("ns_one_core", "ns_one_core_fastest"):
        per_op = {schedule: large[schedule][name] / large["ops"] / (small[schedule][name] / small["ops"]) for schedule in SCHEDULES}
        document[name.replace("ns", "ns_per_op_large_to_small", 1)] = {schedule: round(ratio, 2) for schedule, ratio in per_op.items()}
    return document | {"provenance": results.provenance(HERE)}


def table(document: dict[str, Any]) -> str:
    """The figures as Markdown."""
    header = ["ops", "schedule", "placements/s, one core", "ns per op", "placements/s, all cores", "all cores / one", "by processor time"]
    names = ("placements_per_s_one_core", "ns_per_op", "placements_per_s_all_cores", "speedup_all_cores", "speedup_by_processor_time")
    cells = [(size, schedule, document[str(size)][schedule]) for size in SAMPLES for schedule in SCHEDULES]
    rows = [[str(size), schedule, *(str(found[name]) for name in names)] for size, schedule, found in cells]
    gained = f"Arithmetic that touches no memory gains {document['speedup_of_arithmetic']} on all cores of this machine.\n"
    ratio = document["ns_per_op_large_to_small_one_core"]
    growth = ", ".join(f"{ratio[schedule]} ({schedule})" for schedule in SCHEDULES)
    return f"{results.markdown_table(header, rows)}\n{gained}\nTime per op at 100,000 ops over that at 10,000: {growth}.\n"


def main() -> None:
    output.benchmark(__doc__, HERE, run, table, repeats=9)


if __name__ == "__main__":
    main()
