"""`gnnplace place`: a placement from a planner or, zero-shot, from a trained policy, written with what it is predicted to take."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gnnplace import build
from gnnplace.baselines.budget import Budget
from gnnplace.baselines.fastest import Standing
from gnnplace.commands import inputs, terminal
from gnnplace.commands.candidates import Candidate, candidates
from gnnplace.commands.measure import seconds
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser
from gnnplace.evaluate.bounds import bound_name, lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.frontends import strict_json
from gnnplace.frontends.json_placement import Provenance, predicted, write_placement
from gnnplace.problem import Problem
from gnnplace.result import Planner
from gnnplace.version import VERSION

BEST = "best"


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
    if chosen.planner is None and chosen.checkpoint is None:
        chosen.planner = BEST
    inputs.check_folder(chosen.output)
    problem = inputs.problem(chosen)
    started = time.perf_counter_ns()
    source = _policy(chosen) if chosen.checkpoint else Source({})
    if chosen.planner == BEST:
        source = source._replace(planners=_portfolio(problem, chosen, source))
    elif chosen.planner:
        source = Source(_one(problem, chosen, parser))
    found = candidates(problem, source.planners, chosen.schedule, terminal.progress(chosen.quiet))
    best = found[0]
    if best.result.infeasible is not None:
        print(f"gnnplace place: nothing feasible found; {best.planner}: {best.result.infeasible}", file=sys.stderr)
        return NOTHING_FEASIBLE
    _write(chosen, problem, source, best, time.perf_counter_ns() - started)
    return DONE


def _parser() -> Parser:
    parser = Parser("place", main.__doc__ or "")
    inputs.add_problem_arguments(parser)
    inputs.add_planning_arguments(parser)
    parser.add_argument("-o", "--output", metavar="PLACEMENT", required=True, help="the JSON file to write")
    parser.add_argument(
        "--planner", metavar="NAME", help=f"one planner; {BEST} (unless there is a checkpoint) asks all, then searches from the fastest"
    )
    parser.add_argument("--checkpoint", metavar="PATH", help=f"a trained policy: its greedy placement, among others with --planner {BEST}")
    parser.add_argument(
        "--samples", metavar="N", type=inputs.count, default=0, help="with --checkpoint: the fastest of that and of N samples"
    )
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--budget", metavar="SECONDS", type=_duration, help=f"of {BEST}; e.g. 10s. The result depends on the machine")
    budget.add_argument("--evaluations", metavar="N", type=inputs.positive, help=f"of {BEST}; the same result everywhere")
    return parser


def _duration(text: str) -> float:
    return seconds(text.removesuffix("s"))


def _one(problem: Problem, chosen: argparse.Namespace, parser: Parser) -> Mapping[str, Planner]:
    planners = build.planners(problem, simulate, chosen.seed)
    if chosen.planner in build.missing():
        parser.error(f"--planner: {chosen.planner}: {build.missing()[chosen.planner]}")
    if chosen.planner not in planners:
        parser.error(f"--planner: {strict_json.unknown('planner', chosen.planner, (BEST, *planners))}")
    return {chosen.planner: planners[chosen.planner]}


def _portfolio(problem: Problem, chosen: argparse.Namespace, source: Source) -> Mapping[str, Planner]:
    """The portfolio's winner, by its name."""
    given = chosen.budget is not None or chosen.evaluations is not None
    budget = Budget(seconds=chosen.budget, evaluations=chosen.evaluations) if given else build.enough(problem)
    progress = terminal.progress(chosen.quiet)

    def say(planner: str, standing: Standing) -> None:
        progress(f"{planner}: {terminal.milliseconds(standing[2])}")

    policy = next(iter(source.planners.values()), None)
    winner = build.portfolio(problem, simulate, chosen.seed, budget, chosen.schedule, policy, say)
    return {f"{BEST}: {winner.planner}": lambda problem: winner.placement}


def _policy(chosen: argparse.Namespace) -> Source:
    from gnnplace.commands import zero_shot  # torch, which no other way needs

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
    write_placement(chosen.output, problem.graph, inputs.cluster(chosen.cluster), best.placement, prediction, provenance)
    step, bound = terminal.milliseconds(prediction.step_time_ns), terminal.milliseconds(prediction.bound_ns)
    terminal.progress(chosen.quiet)(f"{chosen.output}: {best.planner}, {step}; bound {bound}")
