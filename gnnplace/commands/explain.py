"""`gnnplace explain`: why a placed step takes as long as it does, and what would shorten it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands import inputs, reporting
from gnnplace.commands.usage import DONE
from gnnplace.formats.placements import read_about, read_placement
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.chain_words import Stretch
from gnnplace.report.explanation import FASTER, Explanation, Move, PartExplanation, explain, explain_part
from gnnplace.report.step_report import write_step_report
from gnnplace.sources import graphs as sources

MOST_MOVES = 10


def main(chosen: argparse.Namespace) -> int:
    """Explains the step, or the part of it that is named."""
    problem = inputs.problem(chosen)
    placement = read_placement(chosen.placement, problem.graph, sources.cluster(chosen.cluster))
    found = explain(problem, placement) if chosen.part is None else explain_part(problem, placement, chosen.part)
    if chosen.report is not None:
        origin = reporting.origin(chosen, read_about(chosen.placement).provenance)
        write_step_report(chosen.report, problem, placement, origin)
    if chosen.json:
        terminal.print_json(_document(found))
    elif isinstance(found, Explanation):
        fused = placement.fusion is not None
        bound = terminal.bounded(lower_bound(problem, fused), bound_name(problem, fused), None)
        terminal.say(f"{problem.graph.name} on {problem.cluster.name}: {terminal.milliseconds(found.step_time_ns)}; bound {bound}", "")
        _print(found)
    else:
        _print_part(problem, found)
    return DONE


def _document(found: Explanation | PartExplanation) -> dict[str, object]:
    """The fields by name, rows of named values as objects."""
    rows = ("chain", "changes", "moves")
    return asdict(found) | {key: [row._asdict() for row in getattr(found, key)] for key in rows if hasattr(found, key)}


def _print(found: Explanation) -> None:
    terminal.say("The critical chain: what the end of the step waited for, back to its start")
    terminal.print_table(("ms", "of the step", "where", "what", "ops", "why it began then"), [_row(part, found) for part in found.chain])
    places = [(place, _ms(time_ns), _share(time_ns, found)) for place, time_ns in found.places_ns.items()]
    terminal.say("", "The chain by place")
    terminal.print_table(("where", "ms", "of the step"), places)
    changes = [(each.what, *_against(each.step_time_ns, found.step_time_ns)) for each in found.changes]
    terminal.say("", "What to change first, with the same placement")
    terminal.print_table((f"{FASTER} times as fast", "step ms", "change"), changes)
    if found.moves:
        _print_moves(found.moves[:MOST_MOVES], found.step_time_ns, "Modules that would be better elsewhere, each by itself")
    else:
        terminal.say("", "No module by itself would be better elsewhere.")


def _print_part(problem: Problem, found: PartExplanation) -> None:
    rows = [
        ("stands on", ", ".join(f"{device} ({_ms(time_ns)} ms of work)" for device, time_ns in found.work_ns.items())),
        ("variables", terminal.mebibytes(found.variable_bytes)),
        ("on the critical chain", f"{_ms(found.chain_ns)} ms of {_ms(found.step_time_ns)}"),
        ("begins", f"{_ms(found.start_ns)} ms: {found.waits[0]}"),
        *(("and that" if number else "because", why) for number, why in enumerate(found.waits[1:])),
    ]
    terminal.print_table((f"{found.name} of {problem.graph.name}", ""), rows)
    _print_moves(found.moves, found.step_time_ns, "Elsewhere")


def _print_moves(moves: Sequence[Move], now_ns: int, title: str) -> None:
    rows = [(each.module, each.device, *_against(each.step_time_ns, now_ns), each.infeasible or "yes") for each in moves]
    terminal.say("", title)
    terminal.print_table(("module", "on", "step ms", "change", "feasible"), rows)


def _row(part: Stretch, found: Explanation) -> tuple[str, ...]:
    times = f"{_ms(part.start_ns)} - {_ms(part.end_ns)}"
    return times, _share(part.end_ns - part.start_ns, found), part.where, part.what, str(part.nodes), part.why


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:,.3f}"


def _share(time_ns: int, found: Explanation) -> str:
    return terminal.percent(time_ns / found.step_time_ns)


def _against(time_ns: int | None, now_ns: int) -> tuple[str, str]:
    return (terminal.NONE, terminal.NONE) if time_ns is None else (_ms(time_ns), f"{100 * (time_ns / now_ns - 1):+.1f} %")
