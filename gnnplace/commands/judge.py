"""`gnnplace judge`: an assignment that somebody already has, as its program runs it, and a better one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from gnnplace.choices import RuntimeName
from gnnplace.commands import form_options, options, values
from gnnplace.commands.usage import DONE, Parser, Several, importing
from gnnplace.complaints import UsageError
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.exports.targets import Model
    from gnnplace.exports.trial import Trial
    from gnnplace.placement import Placement
    from gnnplace.problems import Problem
    from gnnplace.report.explanation import Move
    from gnnplace.result import StepResult

PURPOSE = """An assignment that you have (a device_map, affinities, device strings, a split_spec), as its program runs \
it: step time, memory, what the step waits for, and the best single change. Several make a table."""
JUDGED = tuple(name for name in get_args(RuntimeName) if name != "placed")


class Judged(NamedTuple):
    """An assignment: its step under the runtime, why the runtime refuses it (None: it runs), and what would help."""

    path: str
    placement: Placement
    result: StepResult
    refused: str | None
    waits: tuple[str, float] | None  # the place that is longest on the critical chain, and its share
    change: Move | None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed and checked arguments."""
    parser = Parser("judge", PURPOSE)
    options.add_problem_arguments(parser)
    parser.add_argument(
        "--map",
        metavar="FILE",
        nargs="+",
        action=Several,
        default=[],
        required=True,
        dest="maps",
        help="assignments, as JSON",
    )
    parser.add_argument(
        "--from", choices=JUDGED, required=True, dest="origin", help="the program whose assignments they are"
    )
    parser.add_argument("--improve", action="store_true", help="search for a better assignment of the same kind")
    parser.add_argument(
        "-o", "--output", metavar="PATH", type=values.new_path, help="with --improve: the file or folder to write it to"
    )
    options.add_budget_arguments(parser)
    parser.add_argument("--seed", type=values.seed, default=0, help="of the search; 0 unless given")
    options.add_json_argument(parser)
    options.add_quiet_argument(parser)
    chosen = parser.parse_args(arguments)
    if chosen.output is not None and not chosen.improve:
        parser.error("-o/--output: is for a better assignment; say --improve, too")
    if chosen.runtime not in (None, chosen.origin):
        parser.error(f"--for: {chosen.runtime} does not run what is {chosen.origin}'s")
    chosen.runtime = chosen.origin
    return chosen


def main(chosen: argparse.Namespace) -> int:
    """Judges the assignments, and improves the best one if that is asked."""
    with importing():
        from gnnplace.bounds.bounds import lower_bound
        from gnnplace.exports.targets import Model
        from gnnplace.sources import graphs as sources
    say, model = terminal.progress(chosen.quiet), Model(chosen.graph, dict(chosen.dim), tuple(chosen.fetch))
    cluster, step = sources.cluster(chosen.cluster), form_options.parallelism(chosen)
    with sources.opened(chosen.graph, options.reading(chosen)) as (graph, trial):
        problem = sources.costed(graph, cluster, chosen.costs, say, terminal.warn, step, chosen.runtime)
        judged = [_judged(path, problem, chosen.origin, model, trial) for path in chosen.maps]
        better = _better(chosen, problem, judged) if chosen.improve else None
        if better is not None and chosen.output is not None:
            _export(chosen, problem, better, model, trial)
    bound_ns = lower_bound(problem)
    if chosen.json:
        terminal.print_json(_document(problem, bound_ns, judged, better))
        return DONE
    _print(problem, bound_ns, judged)
    if chosen.improve:
        _print_better(chosen, problem, judged, better)
    return DONE


def _judged(path: str, problem: Problem, runtime: RuntimeName, model: Model, trial: Trial | None) -> Judged:
    """An assignment under the rules of its runtime. Raises ValueError for a bad one, with its path."""
    from gnnplace.exports.assignments import read_assignment
    from gnnplace.exports.targets import exported
    from gnnplace.report.explanation import explain
    from gnnplace.runtimes.refusal import UnsayableError
    from gnnplace.simulator.simulator import simulate

    placement, refused = read_assignment(path, problem, runtime, _of_file(model), trial), None
    try:
        exported(problem, placement, runtime, _of_file(model), lambda line: None, trial)
    except UnsayableError as fault:
        refused = str(fault)
    (result,) = simulate(problem, [placement])
    if refused is not None or result.step_time_ns is None:
        return Judged(path, placement, result, refused, None, None)
    explained = explain(problem, placement)
    place, ns = max(explained.places_ns.items(), key=lambda item: item[1])
    change = next((move for move in explained.moves if move.infeasible is None), None)
    return Judged(path, placement, result, None, (place, ns / explained.step_time_ns), change)


def _of_file(model: Model) -> Model | None:
    """The model, if it is a file that its graph was read from."""
    return model if model.path.endswith((".onnx", ".xml", ".pb", ".pbtxt")) else None


def _best(judged: Sequence[Judged]) -> Judged | None:
    """The fastest assignment that runs and fits."""
    running = [each for each in judged if each.refused is None and each.result.feasible_ns is not None]
    return min(running, key=lambda each: each.result.feasible_ns or 0, default=None)


def _better(chosen: argparse.Namespace, problem: Problem, judged: Sequence[Judged]) -> Placement | None:
    """A placement that the runtime runs faster than the best assignment; None if none was found."""
    from gnnplace.constraints import Constraint, constrained
    from gnnplace.portfolio import comparison, portfolio
    from gnnplace.result import known

    under, best = constrained(problem, Constraint()), _best(judged)
    usual = portfolio.Options(seed=chosen.seed, schedule="given", stages=under.stages, forms=False)
    starts = None if best is None else {"start": known(under.within(best.placement))}
    least_ns = None if best is None else best.result.feasible_ns
    for settings in (usual, *(() if starts is None else (replace(usual, starts=starts),))):
        budget = portfolio.budget(under.problem, chosen.budget, chosen.evaluations)
        winner = comparison.best(under.problem, budget, settings)
        if winner.result.feasible_ns is not None and (least_ns is None or winner.result.feasible_ns < least_ns):
            return under.of_whole(winner.placement)
    return None


def _export(chosen: argparse.Namespace, problem: Problem, better: Placement, model: Model, trial: Trial | None) -> None:
    from gnnplace.exports.targets import export
    from gnnplace.runtimes.refusal import UnsayableError

    try:
        export(problem, better, chosen.origin, chosen.output, _of_file(model), terminal.warn, trial)
    except UnsayableError as refused:
        raise UsageError(f"--improve: {refused}") from refused


def _document(problem: Problem, bound_ns: int, judged: Sequence[Judged], better: Placement | None) -> dict[str, Any]:
    from gnnplace.simulator.simulator import simulate

    def peaks(result: StepResult) -> dict[str, int] | None:
        peak = result.peak_memory_bytes
        return None if peak is None else dict(zip(problem.cluster.device_names, peak.tolist(), strict=True))

    rows = [
        {
            "map": each.path,
            "step_time_ns": each.result.step_time_ns,
            "infeasible": each.result.infeasible,
            "refused": each.refused,
            "peak_memory_bytes": peaks(each.result),
            "waits_for": None if each.waits is None else each.waits[0],
            "change": None if each.change is None else each.change._asdict(),
        }
        for each in judged
    ]
    improved = None
    if better is not None:
        (result,) = simulate(problem, [better])
        improved = {"step_time_ns": result.step_time_ns, "peak_memory_bytes": peaks(result)}
    return {"runtime": problem.graph.runtime, "bound_ns": bound_ns, "maps": rows, "better": improved}


def _print(problem: Problem, bound_ns: int, judged: Sequence[Judged]) -> None:
    from gnnplace.report import step_words
    from gnnplace.runtimes import runtime

    title = f"{step_words.named(problem.graph)} on {problem.cluster.name}, run by {problem.graph.runtime}"
    terminal.say(title, "")
    rows = [
        (
            each.path,
            terminal.ms(each.result.step_time_ns),
            terminal.NONE if each.result.step_time_ns is None else f"{each.result.step_time_ns / bound_ns:.2f}",
            _peaks(problem, each.result),
            terminal.NONE if each.waits is None else f"{each.waits[0]}, {100 * each.waits[1]:.0f} %",
            _change(each),
        )
        for each in judged
    ]
    terminal.print_table(("map", "step ms", "over\nbound", "peak GiB", "waits for", "best single change"), rows)
    for each in judged:
        for why in (each.refused, each.result.infeasible if each.refused is None else None):
            if why is not None:
                terminal.say(f"{each.path}: {why}")
    terminal.say(f"bound {terminal.milliseconds(bound_ns)}")
    if runtime.in_turn(problem.graph):
        terminal.say(f"{problem.graph.runtime} runs {runtime.IN_TURN}")


def _peaks(problem: Problem, result: StepResult) -> str:
    """The peaks of the devices that work."""
    if result.peak_memory_bytes is None:
        return terminal.NONE
    used = zip(problem.cluster.device_names, result.peak_memory_bytes.tolist(), result.busy_ns.tolist(), strict=True)
    return ", ".join(f"{name} {peak / 2**30:.2f}" for name, peak, busy_ns in used if busy_ns)


def _change(judged: Judged) -> str:
    change, step_ns = judged.change, judged.result.step_time_ns
    if change is None or change.step_time_ns is None or step_ns is None:
        return terminal.NONE
    after, more = terminal.ms(change.step_time_ns), change.step_time_ns / step_ns - 1
    return f"{change.module} to {change.device}: {after} ({more:+.1%})"


def _print_better(
    chosen: argparse.Namespace, problem: Problem, judged: Sequence[Judged], better: Placement | None
) -> None:
    from gnnplace.simulator.simulator import simulate

    best = _best(judged)
    if better is None:
        terminal.say("improve: found nothing better")
        return
    (result,) = simulate(problem, [better])
    less = ""
    if best is not None and best.result.step_time_ns and result.step_time_ns:
        less = f", {1 - result.step_time_ns / best.result.step_time_ns:.1%} less than {best.path}"
    terminal.say(f"improve: {terminal.milliseconds(result.step_time_ns or 0)}{less}; {_peaks(problem, result)} GiB")
    if chosen.output is not None:
        terminal.say(f"written to {chosen.output}")
