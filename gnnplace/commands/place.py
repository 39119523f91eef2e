"""`gnnplace place`: a placement from a planner or, zero-shot, from a trained policy, written with what it is predicted to take."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gnnplace import planners as build
from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands import inputs, portfolio
from gnnplace.commands.candidates import Candidate, candidates
from gnnplace.commands.portfolio import BEST
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser
from gnnplace.formats import strict_json
from gnnplace.formats.placements import Predicted, Provenance, predicted, write_placement
from gnnplace.problem import Problem
from gnnplace.report import terminal
from gnnplace.result import Planner
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.version import VERSION


class Source(NamedTuple):
    """Where placements come from: planners by name, and what to say of a policy among them."""

    planners: Mapping[str, Planner]
    encoder: str | None = None
    checkpoint_sha256: str | None = None


def main(arguments: Sequence[str]) -> int:
    """Writes a placement of a graph on a cluster; where none is feasible, nothing."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.planner not in (None, BEST):
        for option in ("checkpoint", "budget", "evaluations"):
            if getattr(chosen, option) is not None:
                parser.error(f"--{option}: {chosen.planner} takes none; {BEST} does")
    if chosen.planner is None and (chosen.checkpoint is None or chosen.budget is not None or chosen.evaluations is not None):
        chosen.planner = BEST
    if chosen.schedule is None:
        chosen.schedule = "given" if chosen.planner == BEST else "critical-path"
    inputs.check_folder(chosen.output)
    problem = inputs.problem(chosen)
    started = time.perf_counter_ns()
    source = _policy(chosen) if chosen.checkpoint else Source({})
    if chosen.planner == BEST:
        best = portfolio.best(problem, chosen, policy=next(iter(source.planners.values()), None))
    else:
        planners = _one(problem, chosen, parser) if chosen.planner else source.planners
        best = candidates(problem, planners, chosen.schedule, terminal.progress(chosen.quiet))[0]
    if best.result.infeasible is not None:
        print(f"gnnplace place: nothing feasible found; {best.planner}: {best.result.infeasible}", file=sys.stderr)
        return NOTHING_FEASIBLE
    _write(chosen, problem, source, best, time.perf_counter_ns() - started)
    return DONE


def _parser() -> Parser:
    parser = Parser("place", main.__doc__ or "")
    inputs.add_problem_arguments(parser)
    inputs.add_planning_arguments(parser, None, f"given with {BEST}, else critical-path")
    parser.add_argument("-o", "--output", metavar="PLACEMENT", required=True, help="the JSON file to write")
    parser.add_argument(
        "--planner",
        metavar="NAME",
        help=f"one planner; {BEST} asks all, then searches from the fastest (without a name, unless there is a checkpoint and no budget)",
    )
    parser.add_argument("--checkpoint", metavar="PATH", help=f"a trained policy: its greedy placement, among others with --planner {BEST}")
    parser.add_argument(
        "--samples", metavar="N", type=inputs.count, default=0, help="with --checkpoint: the fastest of that and of N samples"
    )
    portfolio.add_budget_arguments(parser)
    return parser


def _one(problem: Problem, chosen: argparse.Namespace, parser: Parser) -> Mapping[str, Planner]:
    planners = build.planners(problem, simulate, chosen.seed, chosen.schedule)
    if chosen.planner in build.missing():
        parser.error(f"--planner: {chosen.planner}: {build.missing()[chosen.planner]}")
    if chosen.planner not in planners:
        parser.error(f"--planner: {strict_json.unknown('planner', chosen.planner, (BEST, *planners))}")
    return {chosen.planner: planners[chosen.planner]}


def _policy(chosen: argparse.Namespace) -> Source:
    from gnnplace.training import zero_shot  # torch, which no other way needs

    policy = zero_shot.planner(chosen.checkpoint, chosen.seed, chosen.samples)
    checksum = hashlib.sha256(Path(chosen.checkpoint).read_bytes()).hexdigest()
    return Source({policy.name: policy}, policy.encoder, checksum)


def _write(chosen: argparse.Namespace, problem: Problem, source: Source, best: Candidate, wall_ns: int) -> None:
    prediction = predicted(problem.cluster, best.result, lower_bound(problem), bound_name(problem))
    provenance = Provenance(
        tool=f"gnnplace {VERSION}",
        planner=best.planner,
        encoder=source.encoder,
        checkpoint_sha256=source.checkpoint_sha256,
        seed=chosen.seed,
        wall_ns=wall_ns,
    )
    write_placement(chosen.output, problem.graph, sources.cluster(chosen.cluster), best.placement, prediction, provenance)
    bound = terminal.bounded(prediction.bound_ns, bound_name(problem), prediction.room)
    balance, share = terminal.percent(prediction.load_balance), terminal.percent(prediction.communication_share)
    say = terminal.progress(chosen.quiet)
    say(f"{chosen.output}: {best.planner}, {terminal.milliseconds(prediction.step_time_ns)}; bound {bound}")
    say(f"load balance {balance}, busiest channel occupied {share}, {_idle(prediction)}")


def _idle(prediction: Predicted) -> str:
    assert prediction.idle_ns is not None  # the placement is feasible
    return ", ".join(f"{name} idle {terminal.milliseconds(idle)}" for name, idle in prediction.idle_ns.items())
