"""The arguments of `gnnplace compare`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser, Several

PURPOSE = "Step time, memory and planning time of every planner on one problem, and of a search from their best, fastest feasible first."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked before the work."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.fusion is not None and chosen.granularity == "stage":
        parser.error("--fusion: stages are made of ops that run by themselves")
    shared.check_samples(chosen, parser)
    shared.check_report(chosen.report)
    return chosen


def _parser() -> Parser:
    parser = Parser("compare", PURPOSE)
    shared.add_problem_arguments(parser)
    shared.add_planning_arguments(parser)
    shared.add_budget_arguments(parser)
    shared.add_constraint_arguments(parser)
    shared.add_fusion_argument(parser, "every planner once more, for ops that are fused as frameworks do: rows that end in `, fused`")
    explained = "trained policies, each of which places the problem by its weights alone (zero-shot)"
    parser.add_argument("--checkpoint", metavar="PATH", nargs="+", action=Several, default=[], help=explained)
    parser.add_argument(
        "--samples", metavar="N", type=shared.count, help="with --checkpoint: the fastest of its greedy placement and N samples"
    )
    parser.add_argument(
        "--csv", metavar="FILE", type=shared.output, help="the rows as a table for programs, times in ns and sizes in bytes"
    )
    shared.add_report_argument(parser)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser
