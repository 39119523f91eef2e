"""The arguments of `gnnplace place`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from gnnplace.choices import BEST, SEARCH, SearchName
from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments with planner and schedule, checked."""
    parser = _parser()
    return _completed(parser.parse_args(arguments), parser)


def _parser() -> Parser:
    parser = Parser("place", "Finds a placement of a graph on a cluster and shows it; with -o it is also written, unless none is feasible.")
    shared.add_problem_arguments(parser)
    shared.add_planning_arguments(parser, None, f"given with {BEST}, a policy's own with a checkpoint, else critical-path")
    parser.add_argument("-o", "--output", metavar="PLACEMENT", type=shared.output, help="the JSON file to write")
    parser.add_argument(
        "--planner",
        metavar="NAME",
        help=f"one planner; {BEST} asks all, then searches from the fastest (without a name, unless there is a checkpoint and no --budget)",
    )
    parser.add_argument("--checkpoint", metavar="PATH", help=f"a trained policy: its greedy placement, among others with --planner {BEST}")
    parser.add_argument("--samples", metavar="N", type=shared.count, help="with --checkpoint: the fastest of that and of N samples")
    parser.add_argument(
        "--search",
        choices=get_args(SearchName),
        default=SEARCH,
        help=f"how {BEST} ranks moves: by the policy that comes with the package, or by an estimate alone (default: %(default)s)",
    )
    parser.add_argument(
        "--start", metavar="PLACEMENT", help=f"a placement to improve: {BEST} asks no planner then; so does an improver's --checkpoint"
    )
    shared.add_budget_arguments(parser)
    shared.add_constraint_arguments(parser)
    shared.add_fusion_argument(parser, "fuse ops as frameworks do, then place the fused ops; unless given, each op runs by itself")
    shared.add_report_argument(parser)
    parser.add_argument("--json", action="store_true", help="the placement as one line of JSON instead of tables")
    return parser


def _completed(chosen: argparse.Namespace, parser: Parser) -> argparse.Namespace:
    """The arguments with planner and schedule, checked."""
    if chosen.planner not in (None, BEST):
        for option in ("checkpoint", "budget", "evaluations", "start"):
            if getattr(chosen, option) is not None:
                parser.error(f"--{option}: {chosen.planner} takes none; {BEST} does")
    shared.check_samples(chosen, parser)
    if chosen.planner is None and (chosen.checkpoint is None or chosen.budget is not None):
        chosen.planner = BEST
    if chosen.fusion is not None and chosen.granularity == "stage":
        parser.error("--fusion: stages are made of ops that run by themselves")
    if chosen.fusion is not None and chosen.start is not None:
        parser.error("--start: is a placement of ops that run by themselves; with --fusion there are others")
    if chosen.schedule is None:
        chosen.schedule = "given" if chosen.planner in (None, BEST) else "critical-path"
    shared.check_report(chosen.report)
    return chosen
