"""`gnnplace place`: a placement from a planner or, zero-shot, from a trained policy: what stands where, and how long the step takes."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gnnplace.choices import BEST
from gnnplace.cluster import Cluster
from gnnplace.commands import candidate_table, inputs, reporting
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE
from gnnplace.complaints import UsageError
from gnnplace.constraints import Constrained, Stages, constrained
from gnnplace.formats.placements import Predicted, Provenance, described_placement, read_placement, write_placement
from gnnplace.placement import Placement
from gnnplace.portfolio import candidates, comparison, portfolio
from gnnplace.portfolio.candidates import Candidate
from gnnplace.portfolio.stages import nearest, staged
from gnnplace.problems import Problem
from gnnplace.report import placement_table, terminal
from gnnplace.report.step_report import Rival, write_step_report
from gnnplace.result import Planner, known
from gnnplace.sources import graphs as sources
from gnnplace.version import VERSION


class Source(NamedTuple):
    """Where placements come from: planners by name, and what to say of a policy among them."""

    planners: Mapping[str, Planner]
    encoder: str | None = None
    checkpoint_sha256: str | None = None


def main(chosen: argparse.Namespace) -> int:
    """Finds a placement and shows it; writes it where it is feasible and -o says where."""
    candidate_table.say_compiling(chosen.quiet)
    whole = inputs.problem(chosen)
    constraint = inputs.constraint(chosen)
    under = constrained(whole, constraint)
    made = inputs.fusion(chosen, under.problem)
    problem = under.problem if made is None else made.problem
    if (proof := comparison.not_fitting(whole, problem, constraint)) is not None:
        terminal.warn(f"gnnplace place: {proof}")
        return NOTHING_FEASIBLE
    started = time.perf_counter_ns()
    cluster = sources.cluster(chosen.cluster)  # as its file has it, whatever links were measured
    start = _start(chosen, under, cluster)
    source = _policy(chosen, start) if chosen.checkpoint else Source({})
    stages = under.stages if made is None else None  # they are made of ops that run by themselves
    found = _found(problem, stages, chosen, source, start)
    candidate_table.say_compiled(chosen.quiet)
    if found.result.infeasible is not None:
        unproved = "nothing feasible found, nor a proof that there is nothing"
        terminal.warn(f"gnnplace place: {unproved}; {found.planner}: {found.result.infeasible}")
        return NOTHING_FEASIBLE
    placed = found if made is None else candidates.expanded(found, made)
    step, provenance = placed.predicted(under.problem), _provenance(chosen, source, found, time.perf_counter_ns() - started)
    said = under.said(placed.placement)
    if chosen.output is not None:
        write_placement(chosen.output, whole.graph, cluster, said, step, provenance)
    if chosen.report is not None:
        rivals = [Rival(placed.planner, placed.result)]
        write_step_report(chosen.report, under.problem, said, reporting.origin(chosen, provenance), rivals)
    if chosen.json:
        terminal.print_json(described_placement(whole.graph, cluster, said, step, provenance))
    else:
        _print(chosen, problem, found, step)
        terminal.say(f"said as    {placement_table.said_as(whole, said)}")
    return DONE


def _start(chosen: argparse.Namespace, under: Constrained, cluster: Cluster) -> Placement | None:
    if not chosen.start:
        return None
    start = read_placement(chosen.start, under.whole.graph, cluster)
    if start.fusion is not None:
        raise ValueError(f"{chosen.start}: fusion: searches place ops that run by themselves")
    heard = under.heard(start)
    return heard if under.stages is None or not under.stages.binding else nearest(under.problem, under.stages, heard)


def _found(problem: Problem, stages: Stages | None, chosen: argparse.Namespace, source: Source, start: Placement | None) -> Candidate:
    if chosen.planner == BEST:
        trained_on = portfolio.shipped().trained_on if chosen.search == "learned" else None
        if trained_on is not None and (outside := trained_on.outside(problem.num_ops, problem.num_devices)):
            terminal.progress(chosen.quiet)(f"--search learned: {outside}")
        policy, progress = next(iter(source.planners.values()), None), candidate_table.progress(chosen.quiet)
        options = portfolio.Options(
            seed=chosen.seed,
            schedule=chosen.schedule,
            search=chosen.search,
            policy=policy,
            starts=None if start is None else {"start": known(start)},
            stages=stages,
            progress=progress,
        )
        return comparison.best(problem, portfolio.budget(problem, chosen.budget, chosen.evaluations), options)
    policies = {name: staged(plan, stages) for name, plan in source.planners.items()}
    asked = _one(problem, stages, chosen) if chosen.planner else policies
    return comparison.candidates(problem, asked, chosen.schedule, candidate_table.news(chosen.quiet))[0]


def _one(problem: Problem, stages: Stages | None, chosen: argparse.Namespace) -> Mapping[str, Planner]:
    try:
        return {chosen.planner: comparison.planner_named(chosen.planner, problem, chosen.seed, chosen.schedule, stages)}
    except ValueError as unknown:
        raise UsageError(f"--planner: {unknown}") from unknown


def _policy(chosen: argparse.Namespace, start: Placement | None) -> Source:
    from gnnplace.training.run import zero_shot  # torch, which no other way needs

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
    terminal.say(f"{problem.graph.name} ({problem.num_ops:,} ops) on {problem.cluster.name}", "")
    placement_table.print_layers(problem, found.placement)
    terminal.say()
    placement_table.print_devices(problem, found.placement, step)
    assert step.step_time_ns is not None  # else nothing is printed
    bound = terminal.bounded(step.bound_ns, step.bound or "", step.room)
    asked = str(inputs.constraint(chosen))
    terminal.say("", f"step time  {terminal.milliseconds(step.step_time_ns)}, schedule {found.placement.schedule}")
    terminal.say(f"one device {placement_table.beside_one_device(problem, found.placement, step.step_time_ns)}")
    terminal.say(f"found by   {found.planner}{candidate_table.proof(problem, found)}")
    terminal.say(f"bound      {bound}{f', {asked}' if asked else ''}")
    if chosen.output is not None:
        terminal.say(f"written to {chosen.output}")
