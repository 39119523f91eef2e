"""`gnnplace explain`: why a placed step takes as long as it does, and what would shorten it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.cluster import Cluster
    from gnnplace.formats.placements import About
    from gnnplace.graph import ComputationGraph
    from gnnplace.placement import Placement
    from gnnplace.problems import Problem
    from gnnplace.report.beside import Beside
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
        from gnnplace.report import step_words
        from gnnplace.report.explanation import Explanation, explain, explain_part
        from gnnplace.report.step_report import write_step_report
        from gnnplace.sources import graphs as sources
    problem = options.problem(chosen, chosen.placement)
    graph = problem.graph
    placement = read_placement(chosen.placement, problem.graph, sources.cluster(chosen.cluster))
    explanation = explain(problem, placement) if chosen.part is None else explain_part(problem, placement, chosen.part)
    about = read_about(chosen.placement)
    pair = None if chosen.part is not None else _beside(problem, placement, about)
    if chosen.report is not None:
        origin = options.origin(chosen, about.provenance)
        write_step_report(chosen.report, problem, placement, origin, beside=about.alternatives)
    if chosen.json:
        more = {} if pair is None else {"beside": _compared(pair)}
        fields = _document(graph, explanation) | _each(graph, explanation)
        terminal.print_json(fields | more | {"warnings": caveats(graph)})
    elif isinstance(explanation, Explanation):
        fused = placement.fusion is not None
        bound = terminal.bounded(lower_bound(problem, fused), bound_name(problem, fused), None)
        where, time = f"{step_words.named(graph)} on {problem.cluster.name}", explanation.step_time_ns
        terminal.say(f"{where}: {step_words.for_each(graph, time)}; bound {bound}{step_words.as_given(graph)}", "")
        if pair is not None:
            _print_beside(pair, problem.cluster, about)
        _print(graph, explanation)
    else:
        _print_part(problem, explanation)
    return DONE


def _each(graph: ComputationGraph, explanation: Explanation | PartExplanation) -> dict[str, object]:
    """The number of micro-batches, and the step time for each, as `predicted` of a placement has them."""
    from gnnplace.result import micro_batch_ns

    if (number := graph.micro_batches) == 1:
        return {}
    return {"micro_batches": number, "micro_batch_time_ns": micro_batch_ns(explanation.step_time_ns, number)}


def _beside(problem: Problem, placement: Placement, about: About) -> Beside | None:
    """The placement beside the best rule that its document names, which is planned again; None if it names none."""
    from gnnplace.portfolio import forms
    from gnnplace.report.alternatives import word
    from gnnplace.report.beside import beside
    from gnnplace.simulator.simulator import simulate

    for step in () if about.alternatives is None else about.alternatives.steps:
        if step.plan or step.infeasible is not None:
            continue
        rule = forms.again(step.planner, problem, step.micro_batches, simulate)
        if rule is not None and rule.form is not None and rule.step_time_ns is not None:
            return beside((problem, placement), (rule.form, rule.placement), word(step))
    return None


def _compared(pair: Beside) -> dict[str, object]:
    """The fields of a comparison with a rule as JSON objects."""

    def account(name: str) -> dict[str, object]:
        each = getattr(pair, name)
        return each._asdict() | {"days": {device: day._asdict() for device, day in each.days.items()}}

    return {"plan": account("plan"), "rule": account("rule"), "elsewhere": pair.elsewhere._asdict()}


def _print_beside(pair: Beside, cluster: Cluster, about: About) -> None:
    from gnnplace.report import alternatives, beside

    terminal.say(f"Beside {pair.rule.name}, the best rule")
    terminal.print_table(beside.header(pair), beside.rows(pair))
    alone = "" if about.alternatives is None else alternatives.without_cpus(cluster, about.alternatives)
    terminal.say("", *beside.sentences(pair), *([alone] if alone else []), "")


def _document(graph: ComputationGraph, explanation: Explanation | PartExplanation) -> dict[str, object]:
    """The fields as a JSON object; their rows are objects, too. A step of one micro-batch names none."""
    from dataclasses import asdict

    rows, left_out = ("chain", "changes", "moves"), {"micro_batches"} if graph.copies is None else set()
    return asdict(explanation) | {
        key: [
            {name: each for name, each in row._asdict().items() if name not in left_out}
            for row in getattr(explanation, key)
        ]
        for key in rows
        if hasattr(explanation, key)
    }


def _print(graph: ComputationGraph, explanation: Explanation) -> None:
    from gnnplace.report import explanation as rows_of

    terminal.say("The critical chain: what the end of the step waited for, back to its start")
    terminal.print_table(*rows_of.chain_table(explanation, graph))
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
    from gnnplace.report import step_words

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
    terminal.print_table((f"{part.name} of {step_words.named(problem.graph)}", ""), rows)
    _print_moves(part.moves, part.step_time_ns, "Elsewhere")


def _print_moves(moves: Sequence[Move], before_ns: int, title: str) -> None:
    from gnnplace.report.explanation import MOVES_HEADER, moves_rows

    terminal.say("", title)
    terminal.print_table(MOVES_HEADER, moves_rows(moves, before_ns))
