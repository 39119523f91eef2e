"""`gnnplace compare`: every planner on one problem, and a search from the best placement, beside the lower bound."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gnnplace.commands import form_options, options
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser, Several, importing
from gnnplace.complaints import printable
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.commands.candidate_table import Column
    from gnnplace.constraints import Constrained, Constraint, Stages
    from gnnplace.portfolio.candidates import Candidate
    from gnnplace.problems import Problem
    from gnnplace.result import Planner

PURPOSE = (
    "Step time, memory and planning time of every planner on one problem, and of a search from their best, "
    "fastest feasible first."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed and checked arguments."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    options.check_fusion(chosen, parser)
    options.check_samples(chosen, parser)
    options.check_report(chosen.report)
    return chosen


def _parser() -> Parser:
    parser = Parser("compare", PURPOSE)
    options.add_problem_arguments(parser)
    options.add_planning_arguments(parser)
    options.add_budget_arguments(parser)
    options.add_constraint_arguments(parser)
    options.add_fusion_argument(
        parser, "every planner once more, with ops fused as frameworks fuse them: rows that end in `, fused`"
    )
    explained = "trained policies; each places the problem by its weights alone (zero-shot)"
    parser.add_argument("--checkpoint", metavar="PATH", nargs="+", action=Several, default=[], help=explained)
    options.add_samples_argument(parser)
    explained = "the rows as a table for programs, times in ns and sizes in bytes"
    options.add_file_argument(parser, "--csv", metavar="FILE", explained=explained)
    options.add_report_argument(parser)
    options.add_json_argument(parser)
    return parser


def main(chosen: argparse.Namespace) -> int:
    """Runs every planner and shows their candidates."""
    with importing():
        from gnnplace.commands import candidate_table
        from gnnplace.constraints import constrained
        from gnnplace.portfolio.comparison import not_fitting
    candidate_table.say_compiling(chosen.quiet)
    whole, constraint = options.problem(chosen), options.constraint(chosen)
    under = constrained(whole, constraint)
    problem = under.problem
    candidates, prices = _proposed(chosen, under, options.rules(chosen))
    candidate_table.say_compiled(chosen.quiet)
    _write(chosen, problem, candidates)
    if chosen.json:
        terminal.print_json(_document(problem, chosen, candidates, prices))
    else:
        _print(problem, candidates, prices, constraint, options.rules(chosen))
    if any(candidate.result.infeasible is None for candidate in candidates):
        return DONE
    proof = not_fitting(whole, problem, constraint) or "nothing feasible found, nor a proof that there is nothing"
    terminal.warn(f"gnnplace compare: {proof}")
    return NOTHING_FEASIBLE


def _proposed(
    chosen: argparse.Namespace, under: Constrained, rules: str
) -> tuple[list[Candidate], dict[str, int | None]]:
    """The candidates of all planners and, under rules, the step times of the same planners without them."""
    from gnnplace.commands import candidate_table
    from gnnplace.portfolio.candidates import expanded, ranked
    from gnnplace.portfolio.comparison import compared, priced
    from gnnplace.portfolio.portfolio import Options, budget
    from gnnplace.runtimes.runtime import plain

    say, progress = candidate_table.news(chosen.quiet), candidate_table.progress(chosen.quiet)
    may_change = form_options.may_change(chosen)
    settings = Options(seed=chosen.seed, schedule=chosen.schedule, forms=may_change, progress=progress)

    def every(problem: Problem, more: Mapping[str, Planner], stages: Stages | None = None) -> list[Candidate]:
        limit = budget(problem, chosen.budget, chosen.evaluations)
        return compared(problem, limit, replace(settings, stages=stages), more=more, say=say)

    policies, free = _policies(chosen), list["Candidate"]()
    if rules:
        terminal.progress(chosen.quiet)("without constraint:")
        free = every(plain(under.whole), policies)
        terminal.progress(chosen.quiet)(f"{rules}:")
    candidates = every(under.problem, policies, under.stages)
    prices = priced(candidates, free)
    if (fused := options.fusion(chosen, under.problem)) is not None:
        candidates = ranked([*candidates, *(expanded(row, fused) for row in every(fused.problem, {}))])
    return candidates, prices


def _write(chosen: argparse.Namespace, problem: Problem, candidates: Sequence[Candidate]) -> None:
    """The table of --csv and the page of --report."""
    from gnnplace.formats import atomic
    from gnnplace.portfolio.candidates import table
    from gnnplace.report.step_report import Rival, write_step_report

    if chosen.csv is not None:
        rows = table(problem, candidates).map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
        atomic.write_text(chosen.csv, rows.to_csv(index=False))
    if chosen.report is not None and candidates[0].result.infeasible is None:
        rivals = [Rival(each.planner, each.result) for each in candidates]
        first = candidates[0]
        write_step_report(chosen.report, first.form or problem, first.placement, options.origin(chosen), rivals)


def _policies(chosen: argparse.Namespace) -> dict[str, Planner]:
    """The policies of the checkpoints as planners by name; policies with equal names have their paths in it."""
    if not chosen.checkpoint:
        return {}
    from gnnplace.training.run import zero_shot  # PyTorch takes seconds to import

    policies = {path: zero_shot.planner(path, chosen.seed, chosen.samples) for path in chosen.checkpoint}
    names = [
        f"{each.name} ({each.encoder}), zero-shot" if each.encoder else f"{each.name}, zero-shot"
        for each in policies.values()
    ]
    paths = zip(names, policies, strict=True)
    return {name if names.count(name) == 1 else f"{name}, {path}": policies[path] for name, path in paths}


def _slower(candidates: Sequence[Candidate]) -> dict[str, str]:
    from gnnplace.portfolio.planners import slower_than_one_device

    return slower_than_one_device(
        {each.planner: each.result.feasible_ns for each in candidates if each.placement.fusion is None}
    )


def _document(
    problem: Problem, chosen: argparse.Namespace, candidates: list[Candidate], prices: Mapping[str, int | None]
) -> dict[str, Any]:
    from dataclasses import asdict

    from gnnplace.caveats import caveats
    from gnnplace.commands import candidate_table
    from gnnplace.portfolio import planners
    from gnnplace.portfolio.candidates import bound_of_all

    bound_ns, bound = bound_of_all(problem)
    rows = [candidate.row(problem) for candidate in candidates]
    return {
        "graph": problem.graph.name,
        "cluster": problem.cluster.name,
        "ops": problem.num_ops,
        "bound_ns": bound_ns,
        "schedule": chosen.schedule,
        "bound": bound,
        "fused_bound_ns": bound_of_all(problem, fused=True)[0] if candidate_table.some_fused(candidates) else None,
        "runtime": chosen.runtime,
        "constraint": asdict(options.constraint(chosen)),
        "planners": [
            row | {"op_step_time_ns": prices[row["planner"]]} if row["planner"] in prices else row for row in rows
        ],
        "slower_than_one_device": _slower(candidates),
        "missing": planners.missing(),
        "warnings": caveats(problem.graph),
    }


def _print(
    problem: Problem,
    candidates: list[Candidate],
    prices: Mapping[str, int | None],
    constraint: Constraint,
    rules: str,
) -> None:
    from gnnplace.commands import candidate_table
    from gnnplace.portfolio import planners

    results = [candidate.result for candidate in candidates]
    peaks = [None if result.peak_memory_bytes is None else int(result.peak_memory_bytes.max()) for result in results]
    more = [
        *_price(candidates, prices),
        ("peak\nMiB", *(terminal.NONE if peak is None else f"{peak / 2**20:,.1f}" for peak in peaks)),
        ("sent\nMiB", *(f"{result.transferred_bytes / 2**20:,.1f}" for result in results)),
        ("planning\nms", *(f"{candidate.planning_ns / 1e6:,.1f}" for candidate in candidates)),
    ]
    candidate_table.print_table(problem, candidates, more)
    if rules:
        terminal.say(
            f"constraint: {rules}; without: the same planner without the constraint; price: the ratio of both "
            "step times"
        )
    if constraint.granularity == "stage":
        terminal.say(
            "stages: the nearest ones to the placement of each planner but `stages`; best searches over their cuts"
        )
    candidate_table.print_reasons("slower than the best single device", _slower(candidates))
    for name, how in planners.missing().items():
        terminal.say(f"{name}: {how}")


def _price(candidates: list[Candidate], prices: Mapping[str, int | None]) -> list[Column]:
    """The columns of the step time without the constraint and its ratio to that with it; none without a constraint."""
    if not prices:
        return []
    free = [prices.get(candidate.planner) for candidate in candidates]
    ratio = [
        terminal.NONE if before is None or candidate.step_time_ns is None else f"{candidate.step_time_ns / before:.3f}"
        for candidate, before in zip(candidates, free, strict=True)
    ]
    return [
        ("without\nms", *map(terminal.ms, free)),
        ("price", *ratio),
    ]
