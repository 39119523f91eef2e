"""The Python API, which `import gnnplace as gp` offers: a problem, its placement, its step, its bound.

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
from functools import partial
from typing import Any

from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds import bounds
from gnnplace.bounds import shortage as shortages
from gnnplace.choices import BEST, SEARCH, Format, Mode, SearchName
from gnnplace.cluster import Cluster
from gnnplace.constraints import Constraint, constrained
from gnnplace.exports import targets
from gnnplace.formats.documents import PathText
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.plan import Plan
from gnnplace.portfolio import candidates, comparison, portfolio
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
) -> Problem:
    """A graph on a cluster, with the time of every op on every device.

    Args:
        graph: a step or a network with its inputs (`TorchStep`, `TorchInference`, `TensorFlowStep`,
            `TensorFlowFunction`, `KerasModel`), a `ComputationGraph`, or text as commands take it: a name of the
            corpus, a file, FILE.py:FUNCTION
        cluster: a `Cluster`, or text as commands take it: a preset such as "k40-2", a machine such as "2x rtx-4090,
            pcie4", a JSON file, "here" for this machine
        costs: measured costs of the graph, a file of `gnnplace profile`; a roofline model without it
        dims: sizes of dimensions that an ONNX file or a GraphDef leaves open
        fetches: what the step of a GraphDef computes
        format: "msr-fiddle" or "pipedream" for a file of these
        mode: what is taken of a profile of PipeDream
        name: the graph's, where `graph` is a step, which has none

    Raises ValueError (one line) for what is no graph or no cluster, OSError for an unreadable file.

        >>> from gnnplace import ComputationGraph, Op, Output
        >>> ops = [Op("x", "MatMul", (Output(4096),), flops=10**9), Op("y", "Relu", (Output(4096),), flops=1024)]
        >>> problem(ComputationGraph.from_ops("two ops", ops, [(0, 0, 1)]), "k40-2").num_ops
        2
    """
    # first: a graph may take minutes to capture
    machine = cluster if isinstance(cluster, Cluster) else sources.cluster(cluster)
    if isinstance(graph, str | os.PathLike):
        computation = sources.graph(
            os.fspath(graph), Reading(tuple((dims or {}).items()), tuple(fetches), format, mode)
        )
    else:
        computation = graph_of(graph, name, "graph: is")
    return sources.costed(
        computation, machine, None if costs is None else os.fspath(costs), partial(warnings.warn, stacklevel=3)
    )


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
    constraint: Constraint | None = None,
    granularity: Granularity = "op",
    keep_whole: Sequence[str] = (),
    devices: Sequence[str] = (),
    accelerators_only: bool = False,
    max_cuts: int | None = None,
) -> Plan:
    """The placement of a planner: of `best`, the portfolio of all, unless another is named or given (a policy, any
    function).

    `seconds` or `evaluations` is the budget of `best`, from the start of planning, the lower bound included, until a
    step reaches that bound. With evaluations the result is the same on every machine; without either they are as many
    as take some ten seconds. A `budget` that began before takes their place. The `search` of `best` ranks moves by the
    shipped policy ("learned") or not ("plain"). `best` orders ops by itself, other planners plan for `critical-path`,
    unless a schedule is named. The arguments from `granularity` on are a `constraint` in short. Raises ValueError for
    an unknown planner, where a budget is given to one that takes none, where a budget or a constraint is given both
    ways, and where what stays whole has no device.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2")
        >>> gp.granularity(problem, gp.place(problem, "heft", granularity="module")) in ("module", "stage")
        True
    """
    limits = {name: value for name, value in (("seconds", seconds), ("evaluations", evaluations)) if value is not None}
    short = Constraint(granularity, tuple(keep_whole), tuple(devices), accelerators_only, max_cuts)
    if budget is not None and limits:
        raise ValueError(f"budget: is given, and {next(iter(limits))}, too; one of them says when planning ends")
    if constraint is not None and short != Constraint():
        raise ValueError(f"constraint: is given, and {short}, too; one of them says what may stand where")
    under = constrained(problem, short if constraint is None else constraint)
    posed, stages = under.problem, under.stages
    if planner == BEST:
        options = portfolio.Options(
            seed=seed, schedule=schedule or "given", search=search, stages=stages, progress=progress
        )
        winner = comparison.best(posed, budget or portfolio.budget(posed, seconds, evaluations), options)
        return Plan.of(problem, under.of_whole(winner.placement))
    if budget is not None or limits:
        raise ValueError(f"{next(iter(limits), 'budget')}: is a budget of planner {BEST!r}, and of no other")
    plan = (
        comparison.planner_named(planner, posed, seed, "critical-path", stages)
        if isinstance(planner, str)
        else staged(planner, stages)
    )
    placement = under.of_whole(plan(posed))
    return Plan.of(problem, placement if schedule is None else scheduled(placement, schedule))


def repair(
    problem: Problem, placement: Placement, *, seconds: float | None = None, evaluations: int | None = None
) -> Plan:
    """A placement that overflows a memory, changed until it fits and then until it is no longer faster; one that fits
    as it is.

    Whole families of a variable and blocks of ops move, the schedule stays. What can't be made to fit is returned as it
    overflows least. The budget is that of `place`, which repairs what its planners propose by itself.

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
    """One simulated step: its time, why it is infeasible or None, peak memory and busy time of devices, and when what
    ran.

    >>> import gnnplace as gp
    >>> problem = gp.problem("dlrm", cluster="k40-2")
    >>> step = gp.simulate(problem, gp.place(problem, "gpu"))
    >>> int(step.timeline.end_ns.max()) == step.step_time_ns, len(step.peak_memory_bytes)
    (True, 3)
    """
    return simulator.simulate(problem, [placement], timeline=timeline)[0]


def lower_bound(problem: Problem, *, fusion: bool = False) -> int:
    """Nanoseconds that no step of a feasible placement is shorter than, the best of all proved bounds.

    With `fusion` that holds however ops are fused.

    >>> import gnnplace as gp
    >>> gp.lower_bound(gp.problem("dlrm", cluster="k40-2")) > 0
    True
    """
    return bounds.lower_bound(problem, fusion)


def shortage(problem: Problem) -> shortages.Shortage | None:
    """A proof that no placement fits the memories, with what it would take; None where none is found. `str` of it is
    one line.

    >>> import gnnplace as gp
    >>> gp.shortage(gp.problem("dlrm", cluster="k40-2")) is None
    True
    """
    return shortages.shortage(problem)


def explain(
    problem: Problem, placement: Placement, part: str | None = None
) -> explanation.Explanation | explanation.PartExplanation:
    """Why a step takes as long as it does; with the name of a module or an op, what that waits for and what moving it
    would do.

    Raises ValueError for a name that the graph lacks, and for a placement that has no step.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2")
        >>> gp.explain(problem, gp.place(problem, "gpu")).chain[0].why
        'the step begins'
    """
    return (
        explanation.explain(problem, placement) if part is None else explanation.explain_part(problem, placement, part)
    )


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
    """Writes a placement as another program reads it, to a file or a new folder: docs/exporting.md lists the targets.

    `onnxruntime` and `openvino` need the `model` (a file) that the graph was read from, with the `dims` it was read
    with; `tensorflow` writes a GraphDef besides where it is given one, with the `fetches`. It must give the graph that
    was placed. `accelerate` and `torch-pipelining` try it with the module of a `TorchStep` or `TorchInference`, which
    lives as long as its problem, and warn where there is none. Raises ValueError for another target or model, and for
    what the target can't say or run; OSError for a file.

        >>> import gnnplace as gp, pathlib, tempfile
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.export(problem, gp.place(problem, "gpu"), "dot", f"{folder}/step.dot")
        ...     pathlib.Path(f"{folder}/step.dot").read_text().count("fillcolor")
        315
    """
    read = None if model is None else targets.Model(os.fspath(model), dict(dims or {}), tuple(fetches))
    targets.export(problem, placement, to, path, read, partial(warnings.warn, stacklevel=4))


def write_report(problem: Problem, placement: Placement, path: PathText, candidates: Sequence[Candidate] = ()) -> None:
    """Writes a page about a placed step: one HTML file with its timeline, memory, devices by module and time, and
    critical chain.

    `candidates` are placements of the same problem, as `compare` gives them, for a table of planners beside the bound.
    Raises ValueError for a placement that has no step, for a path that does not end in .html, and where plotly is
    missing; OSError where the file can't be written.

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
    """The placement of every planner, of policies besides, and of a search from the best of all; the fastest feasible
    first.

    >>> import gnnplace as gp
    >>> rows = gp.compare(gp.problem("dlrm", cluster="k40-2"), evaluations=10)
    >>> rows[0].planner.startswith("best: "), rows[0].step_time_ns <= rows[1].step_time_ns
    (True, True)
    """
    more = {getattr(policy, "name", None) or f"policy {number}": policy for number, policy in enumerate(policies, 1)}
    under, budget = constrained(problem, constraint), portfolio.budget(problem, seconds, evaluations)
    options = portfolio.Options(seed=seed, schedule=schedule, stages=under.stages)
    proposed = comparison.compared(under.problem, budget, options, more=more)
    return [candidates.of_whole(candidate, under) for candidate in proposed]
