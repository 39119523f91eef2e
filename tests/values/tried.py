"""What is tried with the documents of one problem, in a process of its own: every planner, policy and command, and what each must hold."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from support.plain_simulator import PlainSimulator
from support.small_policies import small

from gnnplace import cli
from gnnplace.baselines.cp_sat.exact import Proved
from gnnplace.bounds.bounds import lower_bound
from gnnplace.bounds.shortage import shortage
from gnnplace.costs import roofline
from gnnplace.formats.clusters import cluster_document, cluster_of, read_cluster
from gnnplace.formats.graphs import graph_of, read_graph
from gnnplace.placement import Placement
from gnnplace.policies import registry
from gnnplace.policies.registry import POLICIES
from gnnplace.portfolio import comparison, planners, portfolio
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources.graphs import costed
from gnnplace.training.update.rollout import greedy

EVALUATIONS = 150
STATUSES = (0, 3, 4)
Tried = tuple[str, Callable[[], str | None]]  # what is tried, and what tries it: it says what did not hold
PROBLEM = ("graph.json", "--cluster", "cluster.json")
PLACED = (*PROBLEM, "--placement", "placement.json")
FORMS = ("chrome-trace", "dot", "graphml", "networkx")  # which need no file of a model
COMMANDS = {
    "place": ("place", f"./{PROBLEM[0]}", *PROBLEM[1:], "--evaluations", "100", "-o", "placed.json"),
    "place --start": ("place", *PROBLEM, "--start", "placement.json", "--evaluations", "20"),
    "simulate": ("simulate", *PLACED, "--picture", "step"),
    "explain": ("explain", *PLACED),
    "graphs show": ("graphs", "show", f"./{PROBLEM[0]}", *PROBLEM[1:]),
    "clusters show": ("clusters", "show", "./cluster.json"),
    "explain --report": ("explain", *PLACED, "--report", "out.html"),
    **{f"export {form}": ("export", *PLACED, "--to", form, "-o", f"out.{form}") for form in FORMS},
}


def all_of(kind: str, documents: dict[str, dict[str, Any]]) -> Iterator[Tried]:
    """Everything, with the documents as files of the current folder; planners where the document that changed has to do with them."""
    costs = ("--costs", "costs.json") if kind == "costs" else ()
    for name, arguments in COMMANDS.items():
        takes_costs = name != "clusters show" and name != "graphs show"
        yield name, partial(_commanded, (*arguments, *(costs if takes_costs else ())))
    if kind == "placement":
        return
    try:
        problem = costed(read_graph("graph.json"), read_cluster("cluster.json"), costs[-1] if costs else None, print, print)
    except ValueError as error:
        yield "reading", partial(_refused, str(error))
        return
    plain = _plain_documents(problem, documents, kind)
    for name, plan in planners.planners(problem, simulate, 0).items():
        yield name, lambda plan=plan: _held(problem, plain, plan(problem))
    for name in POLICIES:
        yield name, partial(_by_policy, problem, plain, name)
    yield "best", partial(_by_best, problem, plain)


def problem_of(graph: dict[str, Any], cluster: dict[str, Any]) -> Problem:
    """The problem of documents, under roofline costs."""
    return roofline.problem(graph_of(graph), cluster_of(cluster))


def _plain_documents(problem: Problem, documents: dict[str, dict[str, Any]], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The graph and the cluster for the plain simulator, which does not know measured costs: then times are given, links fitted."""
    if kind != "costs":
        return documents["graph"], documents["cluster"]
    measured = documents["costs"]["time_ns"]
    ops = [{"time_ns": {each: times[op["name"]] for each, times in measured.items()}} | op for op in documents["graph"]["ops"]]
    return documents["graph"] | {"ops": ops}, cluster_document(problem.cluster)


def _by_policy(problem: Problem, plain: tuple[dict[str, Any], dict[str, Any]], name: str) -> str | None:
    config = small(name)[0]
    policy = registry.build(config, config.shape([problem]), 1, 0)
    return _held(problem, plain, greedy(policy, simulate)(problem))  # type: ignore[arg-type]


def _by_best(problem: Problem, plain: tuple[dict[str, Any], dict[str, Any]]) -> str | None:
    return _held(problem, plain, comparison.best(problem, portfolio.budget(problem, evaluations=EVALUATIONS)).placement)


def _held(problem: Problem, plain: tuple[dict[str, Any], dict[str, Any]], placement: Placement) -> str | None:
    """What does not hold of a placement: its step is the plain simulator's, which counts in integers of any size; no bound is above it."""
    result = simulate(problem, [placement])[0]
    priority = None if placement.priority is None else placement.priority.tolist()
    due = PlainSimulator(*plain, placement.device.tolist(), placement.schedule, priority).run()
    peak = None if result.peak_memory_bytes is None else result.peak_memory_bytes.tolist()
    if (result.step_time_ns, peak) != (due.step_time_ns, due.peak_memory_bytes):
        return f"a step of {result.step_time_ns} ns that holds {peak}; due are {due.step_time_ns} ns and {due.peak_memory_bytes}"
    if (result.infeasible is None) != (due.legal and bool(due.memory_fits)):
        return f"infeasible: {result.infeasible}; legal: {due.legal}, fits: {due.memory_fits}"
    if result.feasible_ns is None:
        return None
    bound = max(lower_bound(problem), placement.bound_ns if isinstance(placement, Proved) else 0)
    if bound > result.feasible_ns:
        return f"a bound of {bound} ns above a step of {result.feasible_ns} ns"
    return None if (proof := shortage(problem)) is None else f"{proof}, and yet a placement does"


def _refused(said: str) -> str | None:
    return None if re.fullmatch(r"[^\n]{10,4100}", said) else f"no line: {said[:200]!r}"


def _commanded(arguments: tuple[str, ...]) -> str | None:
    """What does not hold of a command: it ends with a documented status and, where that is not 0, in one line."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.main([*arguments, "-q"] if arguments[0] not in ("graphs", "clusters") else [*arguments])
    said = err.getvalue()
    if status not in STATUSES:
        return f"status {status}: {said[-300:]!r}"
    return f"{status} with {said[:300]!r}" if status == 4 and not re.fullmatch(r"gnnplace [^\n]+\n", said) else None


def wrote_nothing_half(folder: Path) -> str | None:
    """No temporary of a file that was to be written is left."""
    left = [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]
    return f"left {left}" if left else None
