"""The Python API of `import gnnplace as gp`: a problem, its placement, its step, its bound.

>>> import gnnplace as gp
>>> problem = gp.problem("dlrm", cluster="k40-2")
>>> placement = gp.place(problem, planner="heft")
>>> step = gp.simulate(problem, placement)
>>> step.infeasible is None and step.step_time_ns >= gp.lower_bound(problem)
True
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds import bounds
from gnnplace.bounds import shortage as shortages
from gnnplace.choices import BEST, SEARCH, CopiesName, Format, Mode, RuntimeName, SearchName
from gnnplace.cluster import Cluster
from gnnplace.constraints import Constraint, constrained
from gnnplace.exports import targets
from gnnplace.formats.documents import PathText
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.plan import Plan
from gnnplace.portfolio import candidates, comparison, forms, portfolio
from gnnplace.portfolio.alternatives import alternatives
from gnnplace.portfolio.candidates import Candidate
from gnnplace.portfolio.rounds import Progress
from gnnplace.portfolio.stages import staged
from gnnplace.problems import Problem
from gnnplace.report import explanation
from gnnplace.result import Planner, StepResult
from gnnplace.simulator import simulator
from gnnplace.sources import graphs as sources
from gnnplace.sources.code_graph import graph_of
from gnnplace.sources.graphs import Reading
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.granularity import Granularity


def problem(
    graph: Any,
    cluster: PathText | Cluster,
    *,
    costs: PathText | None = None,
    dims: Mapping[str, int] | None = None,
    fetches: Sequence[str] = (),
    format: Format = "gnnplace",
    mode: Mode = "training",
    name: str = "step",
    micro_batches: int = 1,
    copies: CopiesName = "together",
    shared: Sequence[str] = (),
    replicas: int = 1,
    shares: Sequence[int] = (),
    one_home: Sequence[str] = (),
    family_shares: Mapping[str, Sequence[int]] | None = None,
    ring_size: int = 0,
    runtime: RuntimeName | None = None,
) -> Problem:
    """A graph on a cluster, with the time of every op on every device.

    Args:
        graph: a step or a network with its inputs (`TorchStep`, `TorchInference`, `TensorFlowStep`,
            `TensorFlowFunction`, `KerasModel`), a `ComputationGraph`, or text as in commands: a name of the corpus, a
            file, FILE.py:FUNCTION
        cluster: a `Cluster`, or text as in commands: a preset such as "k40-2", a machine such as "2x rtx-4090, pcie4",
            a JSON file, "here" for this machine
        costs: measured costs of the graph, a file of `gnnplace profile`; without it a roofline model is used
        dims: sizes of dimensions that an ONNX file or a GraphDef leaves open
        fetches: tensors or ops that the step of a GraphDef computes
        format: "msr-fiddle" or "pipedream" for a file of that format
        mode: the part of a PipeDream profile that is read
        name: the name of the graph, if `graph` is a step
        micro_batches: the micro-batches of a step, each of which is the graph; of an inference graph, requests in
            flight. Gradients are summed, and one update follows; `problem.graph.copies` says what is a copy of what
        copies: "together": all copies of an op stand on one device; "free": each may stand anywhere; "fetched": free,
            and weights are sent anew for each use; "anchored": free, but what runs once on a replica stands on
            one device; "whole": all ops of a replica do
        shared: names of inputs that all micro-batches read; scalar inputs are always shared
        replicas: copies of the variables and their update, whose gradients are summed round a ring
        shares: the micro-batches of each replica; as equal as possible unless given
        one_home: layers whose variables are not copied (tables, experts), with wildcards
        family_shares: layers, with wildcards, and the micro-batches of each replica in these; 0 for a replica without
            a copy of them: `{"h.1?": (0, 0, 4, 4)}`
        ring_size: how many replicas sum their gradients in a ring (those of a node), before they are summed across
            rings; 0: all in one ring
        runtime: the program that will execute the step: "accelerate", "torch-pipelining", "onnxruntime", "openvino",
            "tensorflow", "placed". What it keeps together, the devices that it can use and its order hold for every
            placement of the problem

    Raises ValueError (one line) for a bad graph or cluster, OSError for an unreadable file.

        >>> from gnnplace import ComputationGraph, Op, Output
        >>> ops = [Op("x", "MatMul", (Output(4096),), flops=10**9), Op("y", "Relu", (Output(4096),), flops=1024)]
        >>> problem(ComputationGraph.from_ops("two ops", ops, [(0, 0, 1)]), "k40-2").num_ops
        2
    """
    inputs, layers = _names("shared", shared), _names("one_home", one_home)
    families = tuple((name, tuple(each)) for name, each in (family_shares or {}).items())
    parallelism = Parallelism(micro_batches, copies, inputs, replicas, tuple(shares), layers, families, ring_size)
    # a bad cluster is refused before the graph is captured, which may take minutes
    machine = cluster if isinstance(cluster, Cluster) else sources.cluster(cluster)
    if isinstance(graph, str | os.PathLike):
        reading = Reading(tuple((dims or {}).items()), _names("fetches", fetches), format, mode)
        graph = sources.graph(os.fspath(graph), reading)
    else:
        graph = graph_of(graph, name, "graph: is")
    warn = partial(warnings.warn, stacklevel=3)
    return sources.costed(graph, machine, None if costs is None else os.fspath(costs), warn, warn, parallelism, runtime)


def _names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names. Raises ValueError for a text alone, whose letters would be names."""
    if isinstance(names, str):
        raise ValueError(f"{what}: {names!r} is no sequence of names; give a single one as ({names!r},)")
    return tuple(names)


def place(
    problem: Problem,
    planner: str | Planner = BEST,
    *,
    seconds: float | None = None,
    evaluations: int | None = None,
    budget: Budget | None = None,
    schedule: Schedule | None = None,
    seed: int = 0,
    search: SearchName = SEARCH,
    progress: Progress = lambda planner, score: None,
    keep_form: bool = False,
    constraint: Constraint | None = None,
    granularity: Granularity = "op",
    keep_whole: Sequence[str] = (),
    devices: Sequence[str] = (),
    accelerators_only: bool = False,
    max_cuts: int | None = None,
) -> Plan:
    """Places a problem with `best`, the portfolio of all planners, or with another planner.

    Of several micro-batches with copies together, `best` and rules such as "ddp" choose replicas and copies themselves:
    `plan.problem` is the problem that was placed, `plan.alternatives` what people would do, `plan.advice` what follows.

    Args:
        planner: "best", the name of another planner, a policy, or any function of a problem
        seconds: the budget of `best`, from the start of planning (the lower bound included); planning ends early when a
            step reaches that bound
        evaluations: the budget of `best` as a number of simulated placements; the result is the same on every machine.
            Without either budget there are as many evaluations as take some ten seconds
        budget: a budget of `best` that is already running, in place of `seconds` and `evaluations`
        schedule: unless given, `best` orders ops itself, and other planners plan for `critical-path`
        search: `best` ranks moves by the shipped policy ("learned"), or by an estimate alone ("plain")
        progress: called with the planner and the score of each better placement that `best` finds
        keep_form: `best` chooses no other replicas and copies than those of the problem
        constraint: a constraint on placements
        granularity: a field of the constraint, in its place, as are all arguments below

    Raises ValueError for an unknown planner, for a budget of any planner but `best`, for two budgets or two
    constraints, and if ops that stay together have no device in common.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2")
        >>> gp.granularity(problem, gp.place(problem, "heft", granularity="module")) in ("module", "stage")
        True
    """
    whole, on = _names("keep_whole", keep_whole), _names("devices", devices)
    fields = Constraint(granularity, whole, on, accelerators_only, max_cuts)
    limits = {name: value for name, value in (("seconds", seconds), ("evaluations", evaluations)) if value is not None}
    if budget is not None and limits:
        raise ValueError(f"budget: is given, and {next(iter(limits))}, too; one of them says when planning ends")
    if constraint is not None and fields != Constraint():
        raise ValueError(f"constraint: is given, and {fields}, too; one of them says what may stand where")
    if planner == BEST:
        rule = schedule or "given"
        options = portfolio.Options(seed=seed, schedule=rule, search=search, forms=not keep_form, progress=progress)
        return _best(problem, constraint or fields, options, budget, limits)
    if budget is not None or limits:
        raise ValueError(f"{next(iter(limits), 'budget')}: is a budget of planner {BEST!r}, and of no other")
    if planner in forms.EVERY:
        return _by_rule(problem, constraint or fields, str(planner))
    return _by_planner(problem, constraint or fields, planner, seed, schedule)


def _best(
    problem: Problem,
    constraint: Constraint,
    options: portfolio.Options,
    budget: Budget | None,
    limits: Mapping[str, Any],
) -> Plan:
    under = constrained(problem, constraint)
    options = replace(options, stages=under.stages)
    winner = comparison.best(under.problem, budget or portfolio.budget(under.problem, **limits), options)
    return _plan(problem, candidates.of_whole(winner, under), alternatives(under.problem, winner))


def _by_rule(problem: Problem, constraint: Constraint, name: str) -> Plan:
    under = constrained(problem, constraint)
    rule = forms.by_rule(name, under.problem, simulator.simulate, under.stages)
    return _plan(problem, candidates.of_whole(rule, under))


def _plan(problem: Problem, placed: Candidate, among: tuple[Candidate, ...] = ()) -> Plan:
    return Plan.of(placed.form or problem, placed.placement, among)


def _by_planner(
    problem: Problem, constraint: Constraint, planner: str | Planner, seed: int, schedule: Schedule | None
) -> Plan:
    under = constrained(problem, constraint)
    if isinstance(planner, str):
        plan = comparison.planner_named(planner, under.problem, seed, "critical-path", under.stages)
    else:
        plan = staged(planner, under.stages)
    placement = under.of_whole(plan(under.problem))
    return Plan.of(problem, placement if schedule is None else scheduled(placement, schedule))


def repair(
    problem: Problem, placement: Placement, *, seconds: float | None = None, evaluations: int | None = None
) -> Plan:
    """Moves ops until a placement that overflows a memory fits, then as long as that makes it faster.

    Variables move with all their ops, other ops move in blocks; the schedule stays. A placement that fits is returned
    unchanged. If none is found that fits, the one that overflows least is returned. The budget is as in `place`, which
    repairs the placements of its planners without being asked.

        >>> import gnnplace as gp
        >>> problem = gp.problem("t5-large", cluster="k40-4")
        >>> overflows = gp.place(problem, "gpu")
        >>> fits = gp.repair(problem, overflows, evaluations=100)
        >>> gp.simulate(problem, overflows).infeasible is None, gp.simulate(problem, fits).infeasible is None
        (False, True)
    """
    repaired = portfolio.repaired(
        problem, simulator.simulate, placement, portfolio.budget(problem, seconds, evaluations)
    )
    return Plan.of(problem, repaired)


def simulate(problem: Problem, placement: Placement, *, timeline: bool = True) -> StepResult:
    """Simulates one step: its time, the reason if it is infeasible, peak memory and busy time of devices, the timeline.

    >>> import gnnplace as gp
    >>> problem = gp.problem("dlrm", cluster="k40-2")
    >>> step = gp.simulate(problem, gp.place(problem, "gpu"))
    >>> int(step.timeline.end_ns.max()) == step.step_time_ns, len(step.peak_memory_bytes)
    (True, 3)
    """
    return simulator.simulate(problem, [placement], timeline=timeline)[0]


def lower_bound(problem: Problem, *, fusion: bool = False, every_form: bool = False) -> int:
    """The best proved lower bound on the step time of every feasible placement, in ns.

    With `fusion` it holds for every fusion of ops, too. With `every_form` it holds for every form of a step of several
    micro-batches (any replicas and shares, wherever copies stand), but only without fusion. Raises ValueError for both.

    >>> import gnnplace as gp
    >>> gp.lower_bound(gp.problem("dlrm", cluster="k40-2")) > 0
    True
    >>> step = gp.problem("dlrm", cluster="mixed-4", micro_batches=8, replicas=4)
    >>> gp.lower_bound(step, every_form=True) <= gp.lower_bound(step)
    True
    """
    if fusion and every_form:
        raise ValueError("every_form: the bound of every form is one without fusion; leave fusion out")
    return bounds.bound_of_forms(problem) if every_form else bounds.lower_bound(problem, fusion)


def shortage(problem: Problem) -> shortages.Shortage | None:
    """A proof that no placement fits the memories, with the memory that is missing; None if no proof is found.

    Its `str` is one line.

    >>> import gnnplace as gp
    >>> gp.shortage(gp.problem("dlrm", cluster="k40-2")) is None
    True
    """
    return shortages.shortage(problem)


def explain(
    problem: Problem, placement: Placement, part: str | None = None
) -> explanation.Explanation | explanation.PartExplanation:
    """Explains why a step takes as long as it does.

    With the name of a module or an op in `part`, it explains the waits of that part and its moves to other devices.
    Raises ValueError for an unknown name, and if the placement has no step.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2")
        >>> gp.explain(problem, gp.place(problem, "gpu")).chain[0].why
        'the step begins'
    """
    return Plan.of(problem, placement).explain(part)


def export(
    problem: Problem,
    placement: Placement,
    to: str,
    path: PathText,
    *,
    model: PathText | None = None,
    dims: Mapping[str, int] | None = None,
    fetches: Sequence[str] = (),
) -> None:
    """Writes a placement in the format of another program, to a file or a new folder: docs/exporting.md lists targets.

    `onnxruntime` and `openvino` need the `model` file of the graph, with the `dims` of its reading. With a GraphDef as
    `model`, and its `fetches`, `tensorflow` writes a placed GraphDef, too. The model must give the graph that was
    placed. `accelerate` and `torch-pipelining` try the placement with the module of the `TorchStep` or
    `TorchInference`, which lives as long as its problem; without one they warn. Raises ValueError for an unknown
    target, another model, and a placement that the target can't express or run; OSError for a file.

        >>> import gnnplace as gp, pathlib, tempfile
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.export(problem, gp.place(problem, "gpu"), "dot", f"{folder}/step.dot")
        ...     pathlib.Path(f"{folder}/step.dot").read_text().count("fillcolor")
        315
    """
    read = None if model is None else targets.Model(os.fspath(model), dict(dims or {}), _names("fetches", fetches))
    targets.export(problem, placement, to, path, read, partial(warnings.warn, stacklevel=4))


def write_report(problem: Problem, placement: Placement, path: PathText, candidates: Sequence[Candidate] = ()) -> None:
    """Writes a page about a placed step, one HTML file: timeline, memory, devices by module and time, critical chain.

    `candidates`, as `compare` returns them, fill a table of planners beside the bound. Raises ValueError if the
    placement has no step, if the path does not end in .html, and if plotly is missing; OSError if the file can't be
    written.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2")
        >>> gp.write_report(problem, gp.place(problem, "heft"), "dlrm.html")  # doctest: +SKIP
    """
    Plan.of(problem, placement).report(path, candidates)


def compare(
    problem: Problem,
    *policies: Planner,
    seconds: float | None = None,
    evaluations: int | None = None,
    schedule: Schedule = "critical-path",
    seed: int = 0,
    constraint: Constraint = Constraint(),  # noqa: B008, frozen
) -> list[Candidate]:
    """The placements of every planner, of the `policies`, and of a search from the best of all, fastest feasible first.

    >>> import gnnplace as gp
    >>> rows = gp.compare(gp.problem("dlrm", cluster="k40-2"), evaluations=10)
    >>> rows[0].planner.startswith("best: "), rows[0].step_time_ns <= rows[1].step_time_ns
    (True, True)
    """
    more = {getattr(policy, "name", None) or f"policy {number}": policy for number, policy in enumerate(policies, 1)}
    under, budget = constrained(problem, constraint), portfolio.budget(problem, seconds, evaluations)
    options = portfolio.Options(seed=seed, schedule=schedule, stages=under.stages, forms=True)
    proposed = comparison.compared(under.problem, budget, options, more=more)
    return [candidates.of_whole(candidate, under) for candidate in proposed]
