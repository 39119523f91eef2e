"""`gnnplace place`: a placement from a planner or, zero-shot, from a trained policy, written with what it is predicted to take."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gnnplace import build
from gnnplace.commands import inputs, terminal
from gnnplace.commands.candidates import Candidate, candidates
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
    inputs.check_folder(chosen.output)
    problem = inputs.problem(chosen)
    source = _policy(chosen) if chosen.checkpoint else _planners(problem, chosen, parser)
    found = candidates(problem, source.planners, chosen.schedule, terminal.progress(chosen.quiet))
    best = found[0]
    if best.result.infeasible is not None:
        print(f"gnnplace place: nothing feasible found; {best.planner}: {best.result.infeasible}", file=sys.stderr)
        return NOTHING_FEASIBLE
    _write(chosen, problem, source, best, sum(candidate.planning_ns for candidate in found))
    return DONE


def _parser() -> Parser:
    parser = Parser("place", main.__doc__ or "")
    inputs.add_problem_arguments(parser)
    inputs.add_planning_arguments(parser)
    parser.add_argument("-o", "--output", metavar="PLACEMENT", required=True, help="the JSON file to write")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--planner", metavar="NAME", default=BEST, help=f"one planner; {BEST} (the default) asks all, for the fastest")
    way.add_argument("--checkpoint", metavar="PATH", help="a trained policy: its greedy placement")
    parser.add_argument(
        "--samples", metavar="N", type=inputs.count, default=0, help="with --checkpoint: the fastest of that and of N samples"
    )
    return parser


def _planners(problem: Problem, chosen: argparse.Namespace, parser: Parser) -> Source:
    planners = build.planners(problem, simulate, chosen.seed)
    if chosen.planner == BEST:
        return Source(planners)
    if chosen.planner not in planners:
        parser.error(f"--planner: {strict_json.unknown('planner', chosen.planner, (BEST, *planners))}")
    return Source({chosen.planner: planners[chosen.planner]})


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
