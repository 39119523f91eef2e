"""`gnnplace place`: a placement by a planner or, zero-shot, by a trained policy, with its step time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, get_args

from gnnplace.choices import BEST, SEARCH, SearchName
from gnnplace.commands import form_options, options
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser, importing
from gnnplace.complaints import UsageError
from gnnplace.report import terminal
from gnnplace.version import VERSION

if TYPE_CHECKING:
    from gnnplace.baselines.searching.budget import Budget
    from gnnplace.cluster import Cluster
    from gnnplace.constraints import Constrained, Stages
    from gnnplace.formats.placements import Alternatives, Predicted, Provenance
    from gnnplace.graph import ComputationGraph
    from gnnplace.placement import Placement
    from gnnplace.portfolio.candidates import Candidate
    from gnnplace.portfolio.portfolio import Options
    from gnnplace.problems import Problem
    from gnnplace.result import Planner


class Said(NamedTuple):
    """What the document and the page say of a placement: its step, its origin, what people would do instead."""

    step: Predicted
    provenance: Provenance
    beside: Alternatives | None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed and checked arguments, with planner and schedule filled in."""
    parser = _parser()
    return _completed(parser.parse_args(arguments), parser)


def _parser() -> Parser:
    parser = Parser(
        "place",
        "Finds a placement of a graph on a cluster and shows it; with -o it is also written, unless none is feasible.",
    )
    options.add_problem_arguments(parser)
    options.add_planning_arguments(
        parser, None, f"given with {BEST}, a policy's own with a checkpoint, else critical-path"
    )
    options.add_file_argument(parser, "-o", "--output", metavar="PLACEMENT", explained="the JSON file to write")
    _add_planner_arguments(parser)
    options.add_budget_arguments(parser)
    options.add_constraint_arguments(parser)
    options.add_fusion_argument(
        parser, "fuse ops as frameworks do, then place the fused ops; unless given, each op runs by itself"
    )
    options.add_report_argument(parser)
    options.add_json_argument(parser, "the placement as one line of JSON instead of tables")
    return parser


def _add_planner_arguments(parser: Parser) -> None:
    """Adds --planner, --checkpoint, --samples, --search and --start: who places, and from where."""
    parser.add_argument(
        "--planner",
        metavar="NAME",
        help=f"one planner; {BEST} asks all, then searches from the fastest (without a name, unless there is a "
        "checkpoint and no --budget)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="PATH",
        help="a trained policy, by its file or by the name of one that comes with gnnplace (such as "
        f"hierarchical-gnn): its greedy placement, among others with --planner {BEST}",
    )
    options.add_samples_argument(parser)
    parser.add_argument(
        "--search",
        choices=get_args(SearchName),
        default=SEARCH,
        help=f"how {BEST} ranks moves: by the policy that comes with the package, or by an estimate alone (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--start",
        metavar="PLACEMENT",
        help=f"a placement to improve: {BEST} and an improver's --checkpoint begin there and ask no planner",
    )


def _completed(chosen: argparse.Namespace, parser: Parser) -> argparse.Namespace:
    """The checked arguments, with planner and schedule filled in."""
    if chosen.planner not in (None, BEST):
        for option in ("checkpoint", "budget", "evaluations", "start"):
            if getattr(chosen, option) is not None:
                parser.error(f"--{option}: {chosen.planner} takes none; {BEST} does")
    options.check_samples(chosen, parser)
    if chosen.planner is None and (chosen.checkpoint is None or chosen.budget is not None):
        chosen.planner = BEST
    options.check_fusion(chosen, parser)
    if chosen.fusion is not None and chosen.start is not None:
        parser.error("--start: is a placement of ops that run by themselves; with --fusion there are others")
    if chosen.schedule is None:
        chosen.schedule = "given" if chosen.planner in (None, BEST) else "critical-path"
    options.check_report(chosen.report)
    return chosen


class Source(NamedTuple):
    """The planners of a command line by name; of a trained policy its encoder and its file's checksum, too."""

    planners: Mapping[str, Planner]
    encoder: str | None = None
    checkpoint_sha256: str | None = None


def main(chosen: argparse.Namespace) -> int:
    """Finds a placement, shows it and, if it is feasible, writes it to the file of -o."""
    with importing():
        from gnnplace.commands import candidate_table
        from gnnplace.constraints import constrained
        from gnnplace.portfolio import alternatives, candidates, comparison
        from gnnplace.report import placement_table
        from gnnplace.sources import graphs as sources
    candidate_table.say_compiling(chosen.quiet)
    started, winner = time.perf_counter_ns(), None
    if isinstance(chosen.micro_batches, form_options.Auto):
        chosen, winner = _with_number(chosen, chosen.micro_batches.numbers)
    whole, constraint = options.problem(chosen, chosen.start), options.constraint(chosen)
    under = constrained(whole, constraint)
    fused = options.fusion(chosen, under.problem)
    problem = under.problem if fused is None else fused.problem
    if (proof := comparison.not_fitting(whole, problem, constraint)) is not None:
        return _nothing(proof)
    cluster = sources.cluster(chosen.cluster)  # with the links of its file, not those of --costs
    start = _start(chosen, under, cluster)
    source = _policy(chosen, start) if chosen.checkpoint else Source({})
    stages = under.stages if fused is None else None  # stages consist of unfused ops
    candidate = winner or _candidate(problem, stages, chosen, source, start)
    candidate_table.say_compiled(chosen.quiet)
    if candidate.result.infeasible is not None:
        unproved = "nothing feasible found, nor a proof that there is nothing"
        return _nothing(f"{unproved}; {candidate.planner}: {candidate.result.infeasible}")
    beside = alternatives.described(alternatives.alternatives(problem, candidate), cluster)
    if candidate.form is not None:
        under = under.formed(candidate.form)
        whole, problem = under.whole, under.problem
    provenance = _provenance(chosen, source, candidate, time.perf_counter_ns() - started)
    expanded = candidate if fused is None else candidates.expanded(candidate, fused)
    step = expanded.predicted(under.problem)
    _write(chosen, under, cluster, expanded, Said(step, provenance, beside))
    if not chosen.json:
        _print(chosen, problem, candidate, step, whole.graph)
        terminal.say(f"in words   {placement_table.in_words(whole, under.of_whole(expanded.placement))}")
        if beside is not None:
            _print_alternatives(under.problem.cluster, beside)
    return DONE


def _nothing(why: object) -> int:
    """Says on stderr why there is no placement, and returns the exit status."""
    terminal.warn(f"gnnplace place: {why}")
    return NOTHING_FEASIBLE


def _with_number(chosen: argparse.Namespace, numbers: Sequence[int]) -> tuple[argparse.Namespace, Candidate | None]:
    """The arguments with the number of micro-batches that has the least time for each, and what `best` finds for it."""
    from gnnplace.sources.code import is_code

    if is_code(chosen.graph):
        raise UsageError(
            "--micro-batches auto: code is captured at its micro-batch size; give TorchStep(micro_batches=...)"
        )
    if chosen.start is not None or chosen.checkpoint is not None or options.rules(chosen) or chosen.fusion:
        raise UsageError(
            "--micro-batches auto: goes with no --start, --checkpoint, --fusion, --for and no constraint; give a number"
        )
    each = {number: argparse.Namespace(**{**vars(chosen), "micro_batches": number}) for number in numbers}
    if chosen.planner != BEST:
        return each[_number_of_planner(each)], None
    if not form_options.may_change(chosen):
        raise UsageError(
            f"--micro-batches auto: {BEST} chooses the form, too; leave --copies and --replicas to it, or give a number"
        )
    winner = _best_number(chosen, {number: options.problem(trial) for number, trial in each.items()})
    assert winner.form is not None
    return each[winner.form.graph.micro_batches], winner


def _number_of_planner(each: Mapping[int, argparse.Namespace]) -> int:
    """The number of micro-batches with which a planner takes the least time for each; the last if none fits."""
    ns = dict[int, float]()
    for number, trial in each.items():
        if _may_ask(trial.planner, number):
            proposed = _candidate(options.problem(trial), None, trial, Source({}), None)
            if proposed.result.infeasible is None:
                ns[number] = proposed.score.step_time_ns / number
                _say_number(trial)(number, ns[number])
    return min(ns, key=ns.__getitem__, default=max(each))


def _best_number(chosen: argparse.Namespace, problems: Mapping[int, Problem]) -> Candidate:
    from gnnplace.portfolio import numbers, portfolio

    def budget(problem: Problem) -> Budget:
        return portfolio.budget(problem, chosen.budget, chosen.evaluations)

    return numbers.best_number(problems, budget, _settings(chosen), _say_number(chosen))


def _say_number(chosen: argparse.Namespace) -> Callable[[int, float], None]:
    """Prints the time for each of so many micro-batches to stderr."""
    say = terminal.progress(chosen.quiet)
    return lambda number, each_ns: say(f"{number} micro-batches: {terminal.milliseconds(round(each_ns))} each")


def _settings(chosen: argparse.Namespace) -> Options:
    """The options of `best` that the command line gives, for any form of a step."""
    from gnnplace.commands import candidate_table
    from gnnplace.portfolio.portfolio import Options

    progress = candidate_table.progress(chosen.quiet)
    may_change = form_options.may_change(chosen)
    return Options(
        seed=chosen.seed, schedule=chosen.schedule, search=chosen.search, forms=may_change, progress=progress
    )


def _may_ask(planner: str, number: int) -> bool:
    """Whether a planner places so many micro-batches."""
    from gnnplace.portfolio import forms, planners

    return number > 1 or planner not in {*forms.EVERY, *planners.PIPELINES}


def _start(chosen: argparse.Namespace, under: Constrained, cluster: Cluster) -> Placement | None:
    if not chosen.start:
        return None
    from gnnplace.formats.placements import read_placement
    from gnnplace.portfolio.stages import nearest

    start = read_placement(chosen.start, under.whole.graph, cluster)
    if start.fusion is not None:
        raise ValueError(f"{chosen.start}: fusion: searches place ops that run by themselves")
    placement = under.within(start)
    if under.stages is None or not under.stages.binding:
        return placement
    return nearest(under.problem, under.stages, placement)


def _candidate(
    problem: Problem, stages: Stages | None, chosen: argparse.Namespace, source: Source, start: Placement | None
) -> Candidate:
    from gnnplace.commands import candidate_table
    from gnnplace.portfolio import comparison, forms, portfolio, searches
    from gnnplace.portfolio.stages import staged
    from gnnplace.result import known

    if chosen.planner == BEST:
        trained_on = searches.shipped().trained_on if chosen.search == "learned" else None
        if trained_on is not None and (outside := trained_on.outside(problem.num_ops, problem.num_devices)):
            terminal.progress(chosen.quiet)(f"--search learned: {outside}")
        policy = next(iter(source.planners.values()), None)
        usual, free = _settings(chosen), start is None and policy is None and not chosen.fusion
        settings = replace(
            usual,
            policy=policy,
            starts=None if start is None else {"start": known(start)},
            stages=stages,
            forms=usual.forms and free,
        )
        return comparison.best(problem, portfolio.budget(problem, chosen.budget, chosen.evaluations), settings)
    if chosen.planner in forms.EVERY:
        return _by_rule(problem, stages, chosen.planner)
    policies = {name: staged(plan, stages) for name, plan in source.planners.items()}
    planners = _one(problem, stages, chosen) if chosen.planner else policies
    return comparison.candidates(problem, planners, chosen.schedule, candidate_table.news(chosen.quiet))[0]


def _by_rule(problem: Problem, stages: Stages | None, name: str) -> Candidate:
    """The candidate of a rule that chooses the form of the step."""
    from gnnplace.portfolio import forms
    from gnnplace.simulator.simulator import simulate

    try:
        return forms.by_rule(name, problem, simulate, stages)
    except ValueError as refused:
        raise UsageError(f"--planner: {refused}") from refused


def _one(problem: Problem, stages: Stages | None, chosen: argparse.Namespace) -> Mapping[str, Planner]:
    from gnnplace.portfolio import comparison

    try:
        return {chosen.planner: comparison.planner_named(chosen.planner, problem, chosen.seed, chosen.schedule, stages)}
    except ValueError as unknown:
        raise UsageError(f"--planner: {unknown}") from unknown


def _policy(chosen: argparse.Namespace, start: Placement | None) -> Source:
    import hashlib

    from gnnplace.training.run import checkpoint, zero_shot  # import PyTorch, which planners don't need

    evaluations = None if chosen.planner == BEST else chosen.evaluations
    policy = zero_shot.planner(chosen.checkpoint, chosen.seed, chosen.samples, evaluations)
    if start is not None:
        policy = policy.starting(start)
    checksum = hashlib.sha256(checkpoint.located(chosen.checkpoint).read_bytes()).hexdigest()
    return Source({policy.name: policy}, policy.encoder, checksum)


def _provenance(chosen: argparse.Namespace, source: Source, candidate: Candidate, wall_ns: int) -> Provenance:
    from gnnplace.formats.placements import Provenance

    return Provenance(
        tool=f"gnnplace {VERSION}",
        planner=candidate.planner,
        encoder=source.encoder,
        checkpoint_sha256=source.checkpoint_sha256,
        seed=chosen.seed,
        wall_ns=wall_ns,
    )


def _write(chosen: argparse.Namespace, under: Constrained, cluster: Cluster, candidate: Candidate, words: Said) -> None:
    """Writes the placement of -o and the page of --report, and prints the line of --json."""
    from gnnplace.formats.placements import described_placement, write_placement
    from gnnplace.report.step_report import Rival, write_step_report

    graph, placement = under.whole.graph, under.of_whole(candidate.placement)
    about = (words.step, words.provenance, words.beside)
    if chosen.output is not None:
        write_placement(chosen.output, graph, cluster, placement, *about)
    if chosen.report is not None:
        rivals = [Rival(candidate.planner, candidate.result)]
        origin = options.origin(chosen, words.provenance)
        write_step_report(chosen.report, under.problem, candidate.placement, origin, rivals, words.beside)
    if chosen.json:
        terminal.print_json(described_placement(graph, cluster, placement, *about))


def _print(
    chosen: argparse.Namespace, problem: Problem, candidate: Candidate, step: Predicted, graph: ComputationGraph
) -> None:
    """Prints the placement; without the step on one device if a table of what people would do follows, which has it."""
    from gnnplace.commands import candidate_table
    from gnnplace.report import placement_table, step_words
    from gnnplace.runtimes import runtime

    terminal.say(f"{step_words.named(graph)} ({problem.num_ops:,} ops) on {problem.cluster.name}", "")
    placement_table.print_layers(problem, candidate.placement)
    terminal.say()
    placement_table.print_devices(problem, candidate.placement, step)
    assert step.step_time_ns is not None  # infeasible placements are not printed
    bound = terminal.bounded(step.bound_ns, step.bound or "", step.room)
    rules = options.rules(chosen)
    time, as_given = step_words.for_each(graph, step.step_time_ns), step_words.as_given(graph)
    terminal.say("", f"step time  {time}, schedule {candidate.placement.schedule}{as_given}")
    if not candidate.rivals:
        terminal.say(f"one device {placement_table.beside_one_device(problem, candidate.placement, step.step_time_ns)}")
    terminal.say(f"found by   {candidate.planner}{candidate_table.proof(problem, candidate)}")
    terminal.say(f"bound      {bound}{f', {rules}' if rules else ''}")
    if runtime.in_turn(problem.graph):
        terminal.say(f"runs       {runtime.IN_TURN}")
    if chosen.output is not None:
        terminal.say(f"written to {chosen.output}")


def _print_alternatives(cluster: Cluster, beside: Alternatives) -> None:
    """Prints what people would do, as a table, and the advice."""
    from gnnplace.report import alternatives

    terminal.say()
    terminal.print_table(alternatives.HEADER, alternatives.rows(cluster, beside.steps))
    for line in (alternatives.left_out(beside.steps), alternatives.without_cpus(cluster, beside), beside.advice):
        if line:
            terminal.say(line)
