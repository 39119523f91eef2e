"""`gnnplace explain`: why a placed step takes as long as it does, and what would shorten it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.problems import Problem
    from gnnplace.report.explanation import Explanation, Move, PartExplanation

PURPOSE = """The critical chain of a placed step, what a faster device or link would bring, and which modules would be \
better elsewhere.

With PART it explains where that module or op stands: its time, what it waited for, and the step with it on each \
other device.
"""
MOST_MOVES = 10


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; PART may stand after options."""
    parser = Parser("explain", PURPOSE)
    options.add_problem_arguments(parser)
    parser.add_argument(
        "part", metavar="PART", nargs="?", help="a module such as h.0.attn, all modules below a name (h.0), or an op"
    )
    options.add_placement_argument(parser)
    options.add_report_argument(parser)
    options.add_json_argument(parser, "one line of JSON; everything, nothing shortened")
    options.add_quiet_argument(parser)
    chosen = parser.parse_intermixed_args(arguments)
    options.check_report(chosen.report)
    return chosen


def main(chosen: argparse.Namespace) -> int:
    """Explains the step, or the part that PART names."""
    with importing():
        from gnnplace.bounds.bounds import bound_name, lower_bound
        from gnnplace.caveats import caveats
        from gnnplace.formats.placements import read_about, read_placement
        from gnnplace.report.explanation import Explanation, explain, explain_part
        from gnnplace.report.step_report import write_step_report
        from gnnplace.sources import graphs as sources
    problem = options.problem(chosen)
    placement = read_placement(chosen.placement, problem.graph, sources.cluster(chosen.cluster))
    explanation = explain(problem, placement) if chosen.part is None else explain_part(problem, placement, chosen.part)
    if chosen.report is not None:
        origin = options.origin(chosen, read_about(chosen.placement).provenance)
        write_step_report(chosen.report, problem, placement, origin)
    if chosen.json:
        terminal.print_json(_document(explanation) | {"warnings": caveats(problem.graph)})
    elif isinstance(explanation, Explanation):
        fused = placement.fusion is not None
        bound = terminal.bounded(lower_bound(problem, fused), bound_name(problem, fused), None)
        terminal.say(
            f"{problem.graph.name} on {problem.cluster.name}: {terminal.milliseconds(explanation.step_time_ns)}; bound "
            f"{bound}",
            "",
        )
        _print(explanation)
    else:
        _print_part(problem, explanation)
    return DONE


def _document(explanation: Explanation | PartExplanation) -> dict[str, object]:
    """The fields as a JSON object; their rows are objects, too."""
    from dataclasses import asdict

    rows = ("chain", "changes", "moves")
    return asdict(explanation) | {
        key: [row._asdict() for row in getattr(explanation, key)] for key in rows if hasattr(explanation, key)
    }


def _print(explanation: Explanation) -> None:
    from gnnplace.report import explanation as rows_of

    terminal.say("The critical chain: what the end of the step waited for, back to its start")
    terminal.print_table(rows_of.CHAIN_HEADER, rows_of.chain_rows(explanation))
    terminal.say("", "The chain by place")
    terminal.print_table(rows_of.PLACES_HEADER, rows_of.places_rows(explanation))
    terminal.say("", "What to change first, with the same placement")
    terminal.print_table((f"{rows_of.FASTER} times as fast", "step ms", "change"), rows_of.changes_rows(explanation))
    title = "Modules that would be better elsewhere, each by itself"
    if explanation.moves:
        _print_moves(explanation.moves[:MOST_MOVES], explanation.step_time_ns, title)
    else:
        terminal.say("", "No module by itself would be better elsewhere.")


def _print_part(problem: Problem, part: PartExplanation) -> None:
    rows = [
        (
            "stands on",
            ", ".join(f"{device} ({terminal.ms(time_ns)} ms of work)" for device, time_ns in part.work_ns.items()),
        ),
        ("variables", terminal.mebibytes(part.variable_bytes)),
        ("on the critical chain", f"{terminal.ms(part.chain_ns)} ms of {terminal.ms(part.step_time_ns)}"),
        ("begins", f"{terminal.ms(part.start_ns)} ms: {part.waits[0]}"),
        *(("and that" if number else "because", why) for number, why in enumerate(part.waits[1:])),
    ]
    terminal.print_table((f"{part.name} of {problem.graph.name}", ""), rows)
    _print_moves(part.moves, part.step_time_ns, "Elsewhere")


def _print_moves(moves: Sequence[Move], before_ns: int, title: str) -> None:
    from gnnplace.report.explanation import MOVES_HEADER, moves_rows

    terminal.say("", title)
    terminal.print_table(MOVES_HEADER, moves_rows(moves, before_ns))
