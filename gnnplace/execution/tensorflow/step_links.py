"""Measures how long messages between two cores take within the steps of a workload.

They take longer than in a loop of sends, where caches hold everything and no process sleeps. A step on two cores uses
more CPU time than on one, because of its messages. Random placements send different numbers of messages, of different
sizes. A cost per message and a cost per byte are fitted to the CPU time of their steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import numpy as np
from jaxtyping import Float64, Int32

from gnnplace.cluster import MAX_BYTES, Device
from gnnplace.costs.links import fit_link
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.control_edges import control_messages
from gnnplace.execution.workload import ExecutionPlan, RunningStep
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import NS_PER_S
from gnnplace.units.units import UnitsName, expand, units

SEED = 0
# units of a random placement, and the probability of the second core
DRAWN: tuple[tuple[UnitsName, float], ...] = (("coarse", 0.5), ("coarse", 0.1), ("weights", 0.3), ("ops", 0.1))
WARM_UP, TURNS, TOGETHER = 6, 10, 2  # steps; turns of so many steps
AFTERWARDS_S = 2e-3  # the work of servers after a step counts
SIDES = 2  # sender and receiver
PRIOR_WEIGHT = 0.1  # of the prior's time per byte, where one placement weighs 1


class AccountedStep(RunningStep, Protocol):
    """A placed step that reports the CPU time of its processes."""

    def processor_ns(self) -> int:
        """The CPU time that its processes have used since their start, in ns."""
        ...


class StepLinks:
    """Runs steps on each core alone and under random placements.

    Each `run` runs a few steps of all of them, so it can take turns with other measurements.
    """

    def __init__(
        self, graph: ComputationGraph, start: Callable[[ExecutionPlan], AccountedStep], devices: tuple[Device, Device]
    ) -> None:
        generator = np.random.default_rng(SEED)
        roomy = tuple(replace(device, memory_bytes=MAX_BYTES) for device in devices)
        alone = [np.full(graph.num_ops, core, dtype=np.int32) for core in range(len(devices))]
        drawn = [_drawn(graph, generator, *how) for how in DRAWN]
        plans = [ExecutionPlan(roomy, device, graph.order) for device in (*alone, *drawn)]
        self._sizes = [sent_bytes(graph, plan) for plan in plans]
        self._used_ns: list[list[float]] = []
        self._started = ExitStack()
        self._steps: list[AccountedStep] = []
        try:
            for plan in plans:
                self._steps.append(start(plan))
                self._started.callback(self._steps[-1].close)
            for step in self._steps:
                step.run(WARM_UP)
        except BaseException:
            self.close()
            raise

    def run(self, steps: int) -> list[int]:
        """Runs this many steps of each placement. Returns the step times of the last placement in ns."""
        used, times = [], []
        for step in self._steps:
            before = step.processor_ns()
            times = step.run(steps)
            time.sleep(AFTERWARDS_S)
            used.append((step.processor_ns() - before) / steps)
        self._used_ns.append(used)
        return times

    def samples(self, prior: Sequence[LinkSample], counted: Sequence[int] | None = None) -> tuple[LinkSample, ...]:
        """Transfers of the sizes in `prior`. Each occupies the sender, then the receiver, for the same time.

        Returns `prior` if no placement sends anything. `counted` are the indices of the runs to use (default:
        all). The time per byte of `prior` enters the fit with a small weight, because steps with small messages say
        little about it.
        """
        used = np.median(self._used_ns if counted is None else [self._used_ns[number] for number in counted], axis=0)
        alone, sizes = len(used) - len(DRAWN), self._sizes
        sent = [place for place in range(alone, len(used)) if sizes[place]]
        if not sent:
            return tuple(prior)
        messages = SIDES * np.array([(len(sizes[place]), sum(sizes[place])) for place in sent], dtype=float)
        ns_per_byte = NS_PER_S / fit_link(prior, SIDES).bandwidth_bytes_per_s
        ns, ns_per_byte = _explained(messages, used[sent] - used[:alone].mean(), ns_per_byte)
        occupied = [max(1, round(ns + ns_per_byte * sample.bytes)) for sample in prior]
        return tuple(LinkSample(sample.bytes, ns, SIDES * ns) for sample, ns in zip(prior, occupied, strict=True))

    def close(self) -> None:
        """Closes the steps."""
        self._started.close()


def links_in_steps(
    graph: ComputationGraph,
    start: Callable[[ExecutionPlan], AccountedStep],
    devices: tuple[Device, Device],
    prior: Sequence[LinkSample],
) -> tuple[LinkSample, ...]:
    """The transfers that `StepLinks` measures in `TURNS` turns."""
    links = StepLinks(graph, start, devices)
    try:
        for _ in range(TURNS):
            links.run(TOGETHER)
    finally:
        links.close()
    return links.samples(prior)


def _explained(
    messages: Float64[np.ndarray, "placements 2"], taken_ns: Float64[np.ndarray, " placements"], ns_per_byte: float
) -> Sequence[float]:
    """The ns per message and per byte, neither below 0, by least squares of relative errors.

    The prior's time per byte is one more equation.
    """
    from scipy.optimize import nnls  # takes half a second to import

    whole = np.maximum(1.0, taken_ns)
    shares = np.vstack([messages / whole[:, None], [0, PRIOR_WEIGHT / ns_per_byte]])
    costs_ns: list[float] = nnls(shares, np.append(taken_ns / whole, PRIOR_WEIGHT))[0].tolist()
    return costs_ns


def _drawn(
    graph: ComputationGraph, generator: np.random.Generator, kind: UnitsName, share: float
) -> Int32[np.ndarray, " ops"]:
    chosen = units(graph, kind)
    return expand(chosen, (generator.random(chosen.num_units) < share).astype(np.int32))


def sent_bytes(graph: ComputationGraph, plan: ExecutionPlan) -> list[int]:
    """The bytes of each message that carries a tensor; control messages are left out."""
    runs = control_messages(graph, plan.device, plan.order)
    away = np.flatnonzero((plan.device[runs.edge_src] != plan.device[runs.edge_dst]) & (runs.edge_data != NONE))
    output, _ = np.unique(np.stack([runs.edge_data[away], plan.device[runs.edge_dst[away]]]), axis=1)
    sizes: list[int] = runs.output_bytes[output].tolist()
    return sizes
