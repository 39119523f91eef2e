"""Placements of one workload on two pinned CPU devices, measured and simulated.

The ops are profiled in turns with the placements, so that a change of the machine's speed meets both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from experiments.fidelity import figures
from experiments.fidelity.placements import placements
from gnnplace.cluster import Cluster
from gnnplace.costs import links
from gnnplace.costs import measured as measured_costs
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.host import Host
from gnnplace.execution.machine import cores
from gnnplace.execution.measure import CHECKED_STEPS, difference
from gnnplace.execution.profile import Profiler, profile
from gnnplace.execution.tensorflow.step_links import StepLinks
from gnnplace.execution.timing import LoadMeter, Protocol, in_turns, warm_up
from gnnplace.execution.workload import ExecutionPlan, RunningStep, plan
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.simulator.simulator import simulate
from gnnplace.sources.workload import LOADER

SEED, LIMIT_S, FIRST_STEPS, PEAK_STEPS = 0, 3000.0, 10, 5
NUM_CORES, CPUS = 2, ("cpu", "cpu")
TURNS = Protocol(discarded=10, window=figures.TURN_STEPS, enough_ns=60 * 10**9, counted=0.5)  # two cores are slow for seconds at times


def measured(executor: str, workload: str, steps: int) -> dict[str, Any]:
    """Everything that was measured of one workload, and what the simulator says of it."""
    began, meter = monotonic(), LoadMeter()
    with host_of(executor, workload) as host:
        costs = profile(host, cores("cores", NUM_CORES), FIRST_STEPS)
        cluster = links.measured(machine(executor), [costs])
        problem = measured_costs.problem(host.graph, cluster, costs)
        chosen = placements(problem)
        plans = {name: plan(problem, placement, _timeline(problem, placement)) for name, placement in chosen.items()}
        unplaced = host.unplaced(CHECKED_STEPS)
        with neighbours(executor, workload) as beside:
            sent = StepLinks(host.graph, host.start, problem.cluster.devices) if executor == "tensorflow" else None
            rows, op_ns, slowdown, calm = _in_turns(host, problem, plans, unplaced, beside, sent, steps)
        before = as_lists(costs.links)
        if sent is not None:
            costs = replace(costs, links={CPUS: sent.samples(costs.links[CPUS], calm)})
            cluster = links.measured(machine(executor), [costs])
        for name, each in plans.items():
            rows[name] |= simulated(host.as_run(each), each, cluster, op_ns, slowdown)
    for name, each in plans.items():
        rows[name] |= {"schedule": chosen[name].schedule, "device": "".join(map(str, each.device.tolist())), "order": each.order.tolist()}
    return {
        "ops": problem.num_ops,
        "sha256": problem.graph.sha256,
        "op_ns": op_ns.tolist(),
        "slowdown": slowdown.tolist(),
        "links": as_lists(costs.links),
        "links_before": before,
        "rows": rows,
        "load": meter.load()._asdict(),
        "seconds": round(monotonic() - began),
    }


def host_of(executor: str, workload: str) -> Host:
    """The process that runs a workload's placements."""
    return Host(LOADER, f"experiments.fidelity.{executor}_workloads:{workload}", SEED, limit_s=LIMIT_S)


def machine(executor: str) -> Cluster:
    """Two cores of one memory. TensorFlow's receive over sockets; PyTorch's write into the other one's places."""
    here = cores("cores", NUM_CORES, receive=executor == "tensorflow")
    return replace(here, devices=tuple(replace(device, memory="host") for device in here.devices))


@contextmanager
def neighbours(executor: str, workload: str) -> Iterator[tuple[Profiler, ...]]:
    """The whole step on each core, in processes of their own, so that all cores can do it at the same time."""
    with ExitStack() as stack:
        hosts = [stack.enter_context(host) for host in on_each_core(partial(host_of, executor, workload))]
        yield tuple(Profiler(host, cores("cores", 1).devices) for host in hosts)


def on_each_core(open_host: Callable[[], Host]) -> Iterator[Host]:
    """A host on each core, which may use no other: it inherits that."""
    usable = os.sched_getaffinity(0)
    try:
        for core in sorted(usable)[:NUM_CORES]:
            os.sched_setaffinity(0, {core})
            yield open_host()
    finally:
        os.sched_setaffinity(0, usable)


def together(profilers: Sequence[Profiler]) -> Callable[[int], list[int]]:
    """A run of all profilers at the same time; of each step the longest time."""
    pool = ThreadPoolExecutor(len(profilers))
    return lambda window: list(map(max, *pool.map(lambda profiler: profiler.run(window), profilers)))


def simulated(runs: ComputationGraph, plan: ExecutionPlan, cluster: Cluster, op_ns: np.ndarray, slowdown: np.ndarray) -> dict[str, Any]:
    """What the simulator says of a graph as it runs under a plan, with the times that ops had on each core while it was measured."""
    alone_ns, contended_ns = np.maximum(1, op_ns), np.maximum(1, np.rint(op_ns * slowdown).astype(np.int64))
    (result,) = simulate(Problem(runs, cluster, alone_ns, contended_ns), [Placement(plan.device, "fifo")])
    assert result.peak_memory_bytes is not None
    return {"simulated_ns": result.step_time_ns, "simulated_peak_bytes": result.peak_memory_bytes.tolist(), "transfers": result.transfers}


def _timeline(problem: Problem, placement: Placement) -> Timeline:
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.timeline is not None
    return result.timeline


def _in_turns(
    host: Host,
    problem: Problem,
    plans: dict[str, ExecutionPlan],
    unplaced: Any,
    beside: Sequence[Profiler],
    sent: StepLinks | None,
    steps: int,
) -> tuple[dict[str, Any], np.ndarray, np.ndarray, Sequence[int]]:
    """All placements measured in the same turns as two profiles of the ops, each core alone and all at the same time, and as messages.

    Each keeps its processes meanwhile. Returns what was found of each placement, the ops' times on each core alone, how many times as
    long they take beside each other, at least once, and which runs of `sent` count.
    """
    started: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    alone = [Profiler(host, problem.cluster.devices, works) for works in range(NUM_CORES)]
    try:
        for name, each in plans.items():
            with named(name):
                step = started[name] = host.start(each)
                step.run(CHECKED_STEPS - len(step.outputs().losses))
                rows[name] = {"difference": vars(difference(step.outputs(), *unplaced))}
        for step in (*started.values(), *(profiler.step for profiler in (*alone, *beside))):
            warm_up(step.run, TURNS)
        runs = [*(step.run for step in (*started.values(), *alone)), together(beside), *([] if sent is None else [sent.run])]
        times, counted, stolen = in_turns(runs, replace(TURNS, steps=steps))
        for name, found, windows, taken in zip(started, times, counted, stolen, strict=False):  # profiles and messages come after them
            with named(name):
                rows[name] |= {"step_ns": found, "peak_memory_bytes": peaks(started[name])}
            rows[name] |= {"stolen": float(np.mean([taken[window] for window in windows])), "stolen_in_all": float(np.mean(taken))}
    finally:
        for each in (*alone, *started.values(), *([] if sent is None else [sent])):
            each.close()
    of_alone, of_together = counted[len(started) :][:NUM_CORES], counted[len(started) + NUM_CORES]
    op_ns, beside_ns = _op_ns(alone, of_alone), _op_ns(beside, [of_together] * NUM_CORES)
    return rows, op_ns, np.maximum(1.0, beside_ns / np.maximum(1, op_ns)), counted[-1]


def _op_ns(profilers: Sequence[Profiler], counted: Sequence[Sequence[int]]) -> np.ndarray:
    """The ops' times on each core, of the windows that count."""
    return np.stack([profiler.op_ns(windows) for profiler, windows in zip(profilers, counted, strict=True)], axis=1)


def peaks(step: RunningStep) -> list[list[int]]:
    """The most that each device held, in each of a few steps: messages come earlier in one than in another."""
    return [[int(peak) for peak in step.peak_memory_bytes()] for _ in range(PEAK_STEPS)]


@contextmanager
def named(placement: str) -> Iterator[None]:
    """Says which placement could not be measured."""
    try:
        yield
    except MeasurementError as failed:
        raise RuntimeError(f"{placement}: {failed}") from failed


def as_lists(samples: Mapping[tuple[str, str], Sequence[LinkSample]]) -> list[list[Any]]:
    """Transfers as JSON has them."""
    return [[list(pair), [list(sample) for sample in each]] for pair, each in samples.items()]
