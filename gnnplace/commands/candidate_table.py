"""The table of candidates, a row each, that `compare` and `train` print, and the progress of planning on stderr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.searching.clock import compiling_s, watch_compiling
from gnnplace.choices import BEST
from gnnplace.graph import ComputationGraph
from gnnplace.kept import folder, why_not
from gnnplace.portfolio.candidates import Candidate, bound_of_all, leaves_form
from gnnplace.portfolio.comparison import Say
from gnnplace.portfolio.rounds import Progress
from gnnplace.problems import Problem
from gnnplace.report import step_words, terminal
from gnnplace.result import FEASIBLE, Score, StepResult, metrics, micro_batch_ns

Column = tuple[str, ...]
MOST_WIDTH = 140
SAID_S = 1.0  # the seconds of compiling from which on they are reported
MOST_DEVICES = 5  # devices whose idle times fit into a cell; of more, only the least and the most


def news(quiet: bool) -> Say:
    """A function that prints each candidate to stderr: its step time or why it has none, and its planning time."""
    say = terminal.progress(quiet)

    def tell(candidate: Candidate) -> None:
        step = candidate.result.infeasible or terminal.milliseconds(candidate.result.step_time_ns)
        say(f"{candidate.planner}: {step}, planned in {terminal.milliseconds(candidate.planning_ns)}")

    return tell


def progress(quiet: bool) -> Progress:
    """A function that prints each better placement that `best` finds to stderr."""
    say = terminal.progress(quiet)

    def tell(planner: str, score: Score) -> None:
        infeasible = "" if score.feasibility == FEASIBLE else ", infeasible"
        say(f"{planner}: {terminal.milliseconds(score.step_time_ns)}{infeasible}")

    return tell


def say_compiling(quiet: bool) -> None:
    """Prints to stderr when this process begins to compile kernels, as the first run after an installation does."""
    kept = f"compiling once, for a minute or more; the machine code is kept in {folder()}"
    line = "compiling, for a minute or more" if why_not() else kept
    watch_compiling(None if quiet else terminal.Wait("compiling", line))


def say_compiled(quiet: bool) -> None:
    """Prints to stderr how long this process compiled kernels and, where it can't keep them, why."""
    if compiling_s() > SAID_S:
        again = f"and its machine code is not kept: {why}" if (why := why_not()) else "once after an installation"
        terminal.progress(quiet)(f"compiling took {compiling_s():.0f} s, {again}; budgets don't count it")


def proof(problem: Problem, candidate: Candidate) -> str:
    """`, not proved` for a placement of `exact` that neither its search nor the lower bound proves optimal."""
    searched = candidate.planner.removeprefix(f"{BEST}: ").startswith("exact")
    return ", not proved" if searched and not candidate.proved(problem) else ""


def print_table(problem: Problem, candidates: Sequence[Candidate], more: Sequence[Column] = ()) -> None:
    """Prints the candidates, the lower bound and a legend of the columns to stdout.

    `more` are further columns, each with its header first.
    """
    graph = problem.graph
    title = f"{step_words.named(graph)} ({problem.num_ops:,} ops) on {problem.cluster.name}"
    columns = [
        ("planner", *(f"{candidate.planner}{proof(problem, candidate)}" for candidate in candidates)),
        (f"{_schedule(candidates)}\nms", *(terminal.ms(candidate.result.step_time_ns) for candidate in candidates)),
        *_each(graph, candidates),
        ("fifo\nms", *(terminal.ms(candidate.fifo(problem).step_time_ns) for candidate in candidates)),
        *_metrics(problem, candidates),
        *more,
    ]
    header, *rows = zip(*columns, strict=True)
    bound_ns, bound = bound_of_all(problem)
    bounds = {f"lower bound ({bound})": bound_ns}
    if some_fused(candidates):
        fused_ns, bound = bound_of_all(problem, fused=True)
        bounds[f"of every fusion{' in the given form' if leaves_form(problem) else ''} ({bound})"] = fused_ns
    last = [(name, terminal.ms(bound), *[""] * (len(columns) - 2)) for name, bound in bounds.items()]
    terminal.print_table(header, [*rows, *last], title, MOST_WIDTH)
    terminal.say(
        "room: the most that a placement could still gain; balance: mean load of the accelerators / largest load;"
    )
    terminal.say(
        f"channel: share of the step in which the busiest one is occupied; idle: share for {_idle_devices(problem)}"
        f"{step_words.as_given(graph)}"
    )
    print_reasons(
        "infeasible",
        {candidate.planner: why for candidate in candidates if (why := candidate.result.infeasible) is not None},
    )


def _each(graph: ComputationGraph, candidates: Sequence[Candidate]) -> list[Column]:
    """The column of the step time for each micro-batch; none for a step of one."""
    if graph.micro_batches == 1:
        return []
    times = (micro_batch_ns(candidate.result.step_time_ns, graph.micro_batches) for candidate in candidates)
    return [(f"a {step_words.one(graph)}\nms", *map(terminal.ms, times))]


def print_reasons(what: str, reasons: Mapping[str, str]) -> None:
    """Prints `what:` and a line for each name with its reason; nothing without reasons."""
    if reasons:
        terminal.say("", f"{what}:")
    for name, why in reasons.items():
        terminal.say(f"  {name}: {why}")


def some_fused(candidates: Sequence[Candidate]) -> bool:
    """Whether any candidate fuses ops."""
    return any(candidate.placement.fusion is not None for candidate in candidates)


def _schedule(candidates: Sequence[Candidate]) -> str:
    """The schedule of all candidates, or "own schedule" if they differ."""
    schedules = {candidate.result.schedule for candidate in candidates}
    return schedules.pop() if len(schedules) == 1 else "own schedule"


def _metrics(problem: Problem, candidates: Sequence[Candidate]) -> list[Column]:
    bounds = [bound_of_all(problem, each.placement.fusion is not None)[0] for each in candidates]
    measures = [
        metrics(problem.cluster, candidate.result, bound) for candidate, bound in zip(candidates, bounds, strict=True)
    ]
    idle = [_idle(candidate.result, each.idle_ns) for candidate, each in zip(candidates, measures, strict=True)]
    return [
        ("room\n%", *(_percent(each.room) for each in measures)),
        ("balance\n%", *(_percent(each.load_balance) for each in measures)),
        ("channel\n%", *(_percent(each.communication_share) for each in measures)),
        ("idle\n%", *idle),
    ]


def _idle(result: StepResult, idle_ns: Int64[np.ndarray, " devices"] | None) -> str:
    if idle_ns is None or result.step_time_ns is None:
        return terminal.NONE
    shares = 100 * idle_ns / result.step_time_ns
    shown = shares if len(shares) <= MOST_DEVICES else (shares.min(), shares.max())
    return "/".join(f"{share:.0f}" for share in shown)


def _idle_devices(problem: Problem) -> str:
    names = problem.cluster.device_names
    return "/".join(names) if len(names) <= MOST_DEVICES else "the least/the most idle device"


def _percent(share: float | None) -> str:
    return terminal.NONE if share is None else f"{100 * share:.1f}"
