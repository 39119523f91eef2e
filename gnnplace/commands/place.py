"""`gnnplace place`: a placement from a planner or, zero-shot, from a trained policy: what stands where, and how long the step takes."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from gnnplace import candidates, portfolio
from gnnplace.baselines.staged import nearest, staged
from gnnplace.candidates import BEST, Candidate
from gnnplace.cluster import Cluster
from gnnplace.commands import candidate_table, inputs, reporting
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser
from gnnplace.constraints import Constrained, Stages, constrained
from gnnplace.formats.placements import Predicted, Provenance, described_placement, read_placement, write_placement
from gnnplace.placement import Placement
from gnnplace.portfolio import SearchName
from gnnplace.problems import Problem
from gnnplace.report import placement_table, terminal
from gnnplace.report.step_report import Rival, write_step_report
from gnnplace.result import Planner
from gnnplace.sources import graphs as sources
from gnnplace.version import VERSION


class Source(NamedTuple):
    """Where placements come from: planners by name, and what to say of a policy among them."""

    planners: Mapping[str, Planner]
    encoder: str | None = None
    checkpoint_sha256: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Finds a placement of a graph on a cluster and shows it; with -o it is also written. Nothing is written where none is feasible."""
    parser = _parser()
    chosen = _completed(parser.parse_args(arguments), parser)
    candidate_table.say_compiling(chosen.quiet)
    whole = inputs.problem(chosen)
    constraint = inputs.constraint(chosen)
    under = constrained(whole, constraint)
    made = inputs.fusion(chosen, under.problem)
    problem = under.problem if made is None else made.problem
    if (proof := candidates.not_fitting(whole, problem, constraint)) is not None:
        print(f"gnnplace place: {proof}", file=sys.stderr)
        return NOTHING_FEASIBLE
    started = time.perf_counter_ns()
    cluster = sources.cluster(chosen.cluster)  # as its file has it, whatever links were measured
    start = _start(chosen, under, cluster)
    source = _policy(chosen, start) if chosen.checkpoint else Source({})
    found = _found(problem, under.stages, chosen, source, parser, start)
    candidate_table.say_compiled(chosen.quiet)
    if found.result.infeasible is not None:
        unproved = "nothing feasible found, nor a proof that there is nothing"
        print(f"gnnplace place: {unproved}; {found.planner}: {found.result.infeasible}", file=sys.stderr)
        return NOTHING_FEASIBLE
    placed = found if made is None else candidates.expanded(found, made)
    step, provenance = placed.predicted(under.problem), _provenance(chosen, source, found, time.perf_counter_ns() - started)
    said = under.said(placed.placement)
    if chosen.output is not None:
        write_placement(chosen.output, whole.graph, cluster, said, step, provenance)
    if chosen.report is not None:
        rivals = [Rival(placed.planner, placed.result)]
        write_step_report(chosen.report, under.problem, said, reporting.origin("place", arguments, provenance), rivals)
    if chosen.json:
        terminal.print_json(described_placement(whole.graph, cluster, said, step, provenance))
    else:
        _print(chosen, problem, found, step)
        print(f"said as    {placement_table.said_as(whole, said)}")
    return DONE


def _parser() -> Parser:
    parser = Parser("place", main.__doc__ or "")
    inputs.add_problem_arguments(parser)
    inputs.add_planning_arguments(parser, None, f"given with {BEST}, a policy's own with a checkpoint, else critical-path")
    parser.add_argument("-o", "--output", metavar="PLACEMENT", help="the JSON file to write")
    parser.add_argument(
        "--planner",
        metavar="NAME",
        help=f"one planner; {BEST} asks all, then searches from the fastest (without a name, unless there is a checkpoint and no --budget)",
    )
    parser.add_argument("--checkpoint", metavar="PATH", help=f"a trained policy: its greedy placement, among others with --planner {BEST}")
    parser.add_argument(
        "--samples", metavar="N", type=inputs.count, default=0, help="with --checkpoint: the fastest of that and of N samples"
    )
    parser.add_argument(
        "--search",
        choices=get_args(SearchName),
        default=portfolio.SEARCH,
        help=f"how {BEST} ranks moves: by the policy that comes with the package, or by an estimate alone (default: %(default)s)",
    )
    parser.add_argument(
        "--start", metavar="PLACEMENT", help=f"a placement to improve: {BEST} asks no planner then; so does an improver's --checkpoint"
    )
    inputs.add_budget_arguments(parser)
    inputs.add_constraint_arguments(parser)
    inputs.add_fusion_argument(parser, "fuse ops as frameworks do, then place the fused ops; unless given, each op runs by itself")
    reporting.add_report_argument(parser)
    parser.add_argument("--json", action="store_true", help="the placement as one line of JSON instead of tables")
    return parser


def _completed(chosen: argparse.Namespace, parser: Parser) -> argparse.Namespace:
    """The arguments with planner and schedule, checked."""
    if chosen.planner not in (None, BEST):
        for option in ("checkpoint", "budget", "evaluations", "start"):
            if getattr(chosen, option) is not None:
                parser.error(f"--{option}: {chosen.planner} takes none; {BEST} does")
    if chosen.planner is None and (chosen.checkpoint is None or chosen.budget is not None):
        chosen.planner = BEST
    if chosen.fusion is not None and chosen.granularity == "stage":
        parser.error("--fusion: stages are made of ops that run by themselves")
    if chosen.fusion is not None and chosen.start is not None:
        parser.error("--start: is a placement of ops that run by themselves; with --fusion there are others")
    if chosen.schedule is None:
        chosen.schedule = "given" if chosen.planner in (None, BEST) else "critical-path"
    if chosen.output is not None:
        inputs.check_folder(chosen.output)
    reporting.check(chosen.report)
    return chosen


def _start(chosen: argparse.Namespace, under: Constrained, cluster: Cluster) -> Placement | None:
    if not chosen.start:
        return None
    start = read_placement(chosen.start, under.whole.graph, cluster)
    if start.fusion is not None:
        raise ValueError(f"{chosen.start}: fusion: searches place ops that run by themselves")
    heard = under.heard(start)
    return heard if under.stages is None or not under.stages.binding else nearest(under.problem, under.stages, heard)


def _found(
    problem: Problem, stages: Stages | None, chosen: argparse.Namespace, source: Source, parser: Parser, start: Placement | None
) -> Candidate:
    if chosen.planner == BEST:
        trained_on = portfolio.shipped().trained_on if chosen.search == "learned" else None
        if trained_on is not None and (outside := trained_on.outside(problem.num_ops, problem.num_devices)):
            terminal.progress(chosen.quiet)(f"--search learned: {outside}")
        policy, progress = next(iter(source.planners.values()), None), candidate_table.progress(chosen.quiet)
        return candidates.best(
            problem,
            inputs.budget(chosen, problem),
            chosen.seed,
            chosen.schedule,
            policy=policy,
            starts=None if start is None else {"start": candidates.known(start)},
            search=chosen.search,
            progress=progress,
            stages=stages,
        )
    policies = {name: staged(plan, stages) for name, plan in source.planners.items()}
    asked = _one(problem, stages, chosen, parser) if chosen.planner else policies
    return candidates.candidates(problem, asked, chosen.schedule, candidate_table.news(chosen.quiet))[0]


def _one(problem: Problem, stages: Stages | None, chosen: argparse.Namespace, parser: Parser) -> Mapping[str, Planner]:
    try:
        return {chosen.planner: candidates.planner_named(chosen.planner, problem, chosen.seed, chosen.schedule, stages)}
    except ValueError as unknown:
        parser.error(f"--planner: {unknown}")


def _policy(chosen: argparse.Namespace, start: Placement | None) -> Source:
    from gnnplace.training import zero_shot  # torch, which no other way needs

    evaluations = None if chosen.planner == BEST else chosen.evaluations
    policy = zero_shot.planner(chosen.checkpoint, chosen.seed, chosen.samples, evaluations)
    if start is not None:
        policy = policy.starting(start)
    checksum = hashlib.sha256(Path(chosen.checkpoint).read_bytes()).hexdigest()
    return Source({policy.name: policy}, policy.encoder, checksum)


def _provenance(chosen: argparse.Namespace, source: Source, found: Candidate, wall_ns: int) -> Provenance:
    return Provenance(
        tool=f"gnnplace {VERSION}",
        planner=found.planner,
        encoder=source.encoder,
        checkpoint_sha256=source.checkpoint_sha256,
        seed=chosen.seed,
        wall_ns=wall_ns,
    )


def _print(chosen: argparse.Namespace, problem: Problem, found: Candidate, step: Predicted) -> None:
    print(f"{problem.graph.name} ({problem.num_ops:,} ops) on {problem.cluster.name}\n")
    placement_table.print_layers(problem, found.placement)
    print()
    placement_table.print_devices(problem, found.placement, step)
    assert step.step_time_ns is not None  # else nothing is printed
    bound = terminal.bounded(step.bound_ns, step.bound or "", step.room)
    asked = str(inputs.constraint(chosen))
    print(f"\nstep time  {terminal.milliseconds(step.step_time_ns)}, schedule {found.placement.schedule}")
    print(f"one device {placement_table.beside_one_device(problem, found.placement, step.step_time_ns)}")
    print(f"found by   {found.planner}{candidate_table.proof(problem, found)}")
    print(f"bound      {bound}{f', {asked}' if asked else ''}")
    if chosen.output is not None:
        print(f"written to {chosen.output}")
