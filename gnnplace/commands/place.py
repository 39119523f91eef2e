"""`gnnplace place`: a placement by a planner or, zero-shot, by a trained policy, with its step time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from gnnplace.choices import BEST, SEARCH, SearchName
from gnnplace.commands import options
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser, importing
from gnnplace.complaints import UsageError
from gnnplace.report import terminal
from gnnplace.version import VERSION

if TYPE_CHECKING:
    from gnnplace.cluster import Cluster
    from gnnplace.constraints import Constrained, Stages
    from gnnplace.formats.placements import Predicted, Provenance
    from gnnplace.placement import Placement
    from gnnplace.portfolio.candidates import Candidate
    from gnnplace.problems import Problem
    from gnnplace.result import Planner


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
        help=f"a trained policy: its greedy placement, among others with --planner {BEST}",
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
        from gnnplace.portfolio import candidates, comparison
        from gnnplace.report import placement_table
        from gnnplace.sources import graphs as sources
    candidate_table.say_compiling(chosen.quiet)
    whole, constraint = options.problem(chosen), options.constraint(chosen)
    under = constrained(whole, constraint)
    fused = options.fusion(chosen, under.problem)
    problem = under.problem if fused is None else fused.problem
    if (proof := comparison.not_fitting(whole, problem, constraint)) is not None:
        terminal.warn(f"gnnplace place: {proof}")
        return NOTHING_FEASIBLE
    started = time.perf_counter_ns()
    cluster = sources.cluster(chosen.cluster)  # with the links of its file, not those of --costs
    start = _start(chosen, under, cluster)
    source = _policy(chosen, start) if chosen.checkpoint else Source({})
    stages = under.stages if fused is None else None  # stages consist of unfused ops
    candidate = _candidate(problem, stages, chosen, source, start)
    candidate_table.say_compiled(chosen.quiet)
    if candidate.result.infeasible is not None:
        unproved = "nothing feasible found, nor a proof that there is nothing"
        terminal.warn(f"gnnplace place: {unproved}; {candidate.planner}: {candidate.result.infeasible}")
        return NOTHING_FEASIBLE
    provenance = _provenance(chosen, source, candidate, time.perf_counter_ns() - started)
    expanded = candidate if fused is None else candidates.expanded(candidate, fused)
    step = expanded.predicted(under.problem)
    _write(chosen, under, cluster, expanded, step, provenance)
    if not chosen.json:
        _print(chosen, problem, candidate, step)
        terminal.say(f"in words   {placement_table.in_words(whole, under.of_whole(expanded.placement))}")
    return DONE


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
    from gnnplace.portfolio import comparison, portfolio
    from gnnplace.portfolio.stages import staged
    from gnnplace.result import known

    if chosen.planner == BEST:
        trained_on = portfolio.shipped().trained_on if chosen.search == "learned" else None
        if trained_on is not None and (outside := trained_on.outside(problem.num_ops, problem.num_devices)):
            terminal.progress(chosen.quiet)(f"--search learned: {outside}")
        policy, progress = next(iter(source.planners.values()), None), candidate_table.progress(chosen.quiet)
        settings = portfolio.Options(
            seed=chosen.seed,
            schedule=chosen.schedule,
            search=chosen.search,
            policy=policy,
            starts=None if start is None else {"start": known(start)},
            stages=stages,
            progress=progress,
        )
        return comparison.best(problem, portfolio.budget(problem, chosen.budget, chosen.evaluations), settings)
    policies = {name: staged(plan, stages) for name, plan in source.planners.items()}
    planners = _one(problem, stages, chosen) if chosen.planner else policies
    return comparison.candidates(problem, planners, chosen.schedule, candidate_table.news(chosen.quiet))[0]


def _one(problem: Problem, stages: Stages | None, chosen: argparse.Namespace) -> Mapping[str, Planner]:
    from gnnplace.portfolio import comparison

    try:
        return {chosen.planner: comparison.planner_named(chosen.planner, problem, chosen.seed, chosen.schedule, stages)}
    except ValueError as unknown:
        raise UsageError(f"--planner: {unknown}") from unknown


def _policy(chosen: argparse.Namespace, start: Placement | None) -> Source:
    import hashlib

    from gnnplace.training.run import zero_shot  # imports PyTorch, which planners don't need

    evaluations = None if chosen.planner == BEST else chosen.evaluations
    policy = zero_shot.planner(chosen.checkpoint, chosen.seed, chosen.samples, evaluations)
    if start is not None:
        policy = policy.starting(start)
    checksum = hashlib.sha256(Path(chosen.checkpoint).read_bytes()).hexdigest()
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


def _write(
    chosen: argparse.Namespace,
    under: Constrained,
    cluster: Cluster,
    candidate: Candidate,
    step: Predicted,
    provenance: Provenance,
) -> None:
    """Writes the placement of -o and the page of --report, and prints the line of --json."""
    from gnnplace.formats.placements import described_placement, write_placement
    from gnnplace.report.step_report import Rival, write_step_report

    graph, placement = under.whole.graph, under.of_whole(candidate.placement)
    if chosen.output is not None:
        write_placement(chosen.output, graph, cluster, placement, step, provenance)
    if chosen.report is not None:
        rivals = [Rival(candidate.planner, candidate.result)]
        write_step_report(chosen.report, under.problem, placement, options.origin(chosen, provenance), rivals)
    if chosen.json:
        terminal.print_json(described_placement(graph, cluster, placement, step, provenance))


def _print(chosen: argparse.Namespace, problem: Problem, candidate: Candidate, step: Predicted) -> None:
    from gnnplace.commands import candidate_table
    from gnnplace.report import placement_table

    terminal.say(f"{problem.graph.name} ({problem.num_ops:,} ops) on {problem.cluster.name}", "")
    placement_table.print_layers(problem, candidate.placement)
    terminal.say()
    placement_table.print_devices(problem, candidate.placement, step)
    assert step.step_time_ns is not None  # infeasible placements are not printed
    bound = terminal.bounded(step.bound_ns, step.bound or "", step.room)
    constraint = str(options.constraint(chosen))
    terminal.say("", f"step time  {terminal.milliseconds(step.step_time_ns)}, schedule {candidate.placement.schedule}")
    terminal.say(f"one device {placement_table.beside_one_device(problem, candidate.placement, step.step_time_ns)}")
    terminal.say(f"found by   {candidate.planner}{candidate_table.proof(problem, candidate)}")
    terminal.say(f"bound      {bound}{f', {constraint}' if constraint else ''}")
    if chosen.output is not None:
        terminal.say(f"written to {chosen.output}")
