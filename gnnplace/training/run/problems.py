"""The problems of a training run and their evaluator: the simulator, or this machine if the run measures.

A run that measures keeps the hosts of its workloads. Everything but the policy's own steps is simulated even then:
teachers of the warm start, baselines, bounds, and the order in which the ops of a measured placement run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from gnnplace.baselines.single import on_each
from gnnplace.cluster import Cluster
from gnnplace.config.run import RunConfig
from gnnplace.execution.evaluator import HEURISTICS, LastingHost, MeasuredEvaluator
from gnnplace.execution.host import Host
from gnnplace.execution.ledger import Ledger
from gnnplace.execution.profile import hardware
from gnnplace.execution.timing import PROTOCOLS
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER
from gnnplace.training.run.folder import RunFolder
from gnnplace.training.run.selection import counted, selected

LOADING_S = 600.0


class RunProblems(NamedTuple):
    """The problems of a run, first the named ones, then those of the corpus, and its evaluator."""

    problems: tuple[Problem, ...]
    evaluate: Evaluator


def opened(config: RunConfig, folder: RunFolder, stack: ExitStack, quiet: bool) -> RunProblems:
    """Loads a run's problems, and prints their number; leaving `stack` ends the hosts.

    Raises ValueError for bad ones, MeasurementError where a workload can't be loaded.
    """
    if config.evaluate == "simulated":
        named = _named(config, quiet)
        terminal.progress(quiet)(summary(config))  # graphs of the corpus may be a thousand
        return RunProblems(named + selected(config.corpus, config.seed, config.parallelism), simulate)
    machines = _machines(config)  # graphs may take minutes
    hosts = {text: _host(config, text, stack) for text in dict.fromkeys(text for text, _ in config.problems)}
    # no graph is left to load: this refuses sizes
    graphs = {text: host().graph for text, host in hosts.items()} | sources.graphs([], config.dims)
    problems = _costed(config, graphs, machines, quiet)
    terminal.progress(quiet)(summary(config))
    by_graph = {graphs[text].sha256: host for text, host in hosts.items()}
    protocol, ledger = PROTOCOLS[config.measured.protocol], Ledger(folder.measurements)
    with_gpus = any(device.kind == "gpu" for problem in problems for device in problem.cluster.devices)
    evaluate = MeasuredEvaluator(by_graph, simulate, ledger, protocol, config.measured.limit_s, hardware(with_gpus))
    for problem in problems:
        _require_support(problem, evaluate.of(HEURISTICS))
    return RunProblems(problems, evaluate)


def summary(config: RunConfig) -> str:
    """The number of problems of a run and their sources, before the graphs of the corpus are read."""
    corpus, synthetic = counted(config.corpus)
    parts = {"named": len(config.problems), "of the corpus": corpus, "synthetic": synthetic}
    number, held_out = sum(parts.values()), sum(counted(config.validation))
    kinds = ", ".join(f"{count:,} {what}" for what, count in parts.items() if count)
    validates = f"; validates with {held_out:,} others" if held_out else ""
    return f"trains on {number:,} problem{'s' * (number != 1)} ({kinds}){validates}; places {number:,} in the end"


def simulated(config: RunConfig, quiet: bool) -> tuple[Problem, ...]:
    """The problems of a run that simulates. Raises ValueError for bad ones."""
    return _named(config, quiet) + selected(config.corpus, config.seed, config.parallelism)


def _named(config: RunConfig, quiet: bool) -> tuple[Problem, ...]:
    machines = _machines(config)
    graphs = sources.graphs(list(dict.fromkeys(text for text, _ in config.problems)), config.dims)
    return _costed(config, graphs, machines, quiet)


def _machines(config: RunConfig) -> dict[str, Cluster]:
    return {text: sources.cluster(text) for text in dict.fromkeys(text for _, text in config.problems)}


def _costed(
    config: RunConfig, graphs: Mapping[str, ComputationGraph], machines: Mapping[str, Cluster], quiet: bool
) -> tuple[Problem, ...]:
    posed = zip(config.problems, config.costs or [None] * len(config.problems), strict=True)
    return tuple(
        sources.costed(
            graphs[text], machines[cluster], costs, terminal.progress(quiet), terminal.warn, config.parallelism
        )
        for (text, cluster), costs in posed
    )


def _host(config: RunConfig, text: str, stack: ExitStack) -> LastingHost:
    host = LastingHost(partial(Host, LOADER, text, config.seed, limit_s=LOADING_S))
    stack.callback(host.close)
    return host


def _require_support(problem: Problem, evaluate: Evaluator) -> None:
    """Raises ValueError if this machine can't run even a placement on one device."""
    results = evaluate(problem, on_each(problem, range(problem.num_devices)))
    reasons = [result.infeasible for result in results]
    if all(reason is not None and reason.startswith("unsupported") for reason in reasons):
        raise ValueError(f"{problem.graph.name} can't be measured on {problem.cluster.name}: {reasons[0]}")
