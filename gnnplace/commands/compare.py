"""`gnnplace compare`: every planner on one problem, and the best of all, beside the bound that no placement can pass."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from gnnplace.baselines.explanations import slower_than_one_device
from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands import candidate_table, inputs, reporting
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE
from gnnplace.constraints import Constraint, constrained
from gnnplace.formats import atomic
from gnnplace.portfolio import planners
from gnnplace.portfolio.candidates import Candidate, expanded, ranked, table
from gnnplace.portfolio.comparison import compared, not_fitting, priced
from gnnplace.portfolio.portfolio import Options, budget
from gnnplace.printable import printable
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.step_report import Rival, write_step_report
from gnnplace.result import Planner


def main(chosen: argparse.Namespace) -> int:
    """Asks every planner and shows what each found."""
    candidate_table.say_compiling(chosen.quiet)
    whole, constraint = inputs.problem(chosen), inputs.constraint(chosen)
    under = constrained(whole, constraint)
    problem = under.problem
    say = candidate_table.news(chosen.quiet)
    options = Options(seed=chosen.seed, schedule=chosen.schedule, progress=candidate_table.progress(chosen.quiet))
    more, free = _policies(chosen), list[Candidate]()
    spends = (chosen.budget, chosen.evaluations)
    if constraint != Constraint():
        terminal.progress(chosen.quiet)("without constraint:")
        free = compared(whole, budget(whole, *spends), options, more=more, say=say)
        terminal.progress(chosen.quiet)(f"{constraint}:")
    found = compared(problem, budget(problem, *spends), replace(options, stages=under.stages), more=more, say=say)
    prices = priced(found, free)
    if (made := inputs.fusion(chosen, problem)) is not None:
        rows = compared(made.problem, budget(made.problem, *spends), options, say=say)
        found = ranked([*found, *(expanded(row, made) for row in rows)])
    candidate_table.say_compiled(chosen.quiet)
    if chosen.csv is not None:
        rows = table(problem, found).map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
        atomic.write_text(chosen.csv, rows.to_csv(index=False))
    if chosen.report is not None and found[0].result.infeasible is None:
        rivals = [Rival(each.planner, each.result) for each in found]
        write_step_report(chosen.report, problem, found[0].placement, reporting.origin(chosen), rivals)
    if chosen.json:
        terminal.print_json(_document(problem, chosen, found, prices))
    else:
        _print(problem, found, prices, constraint)
    if any(candidate.result.infeasible is None for candidate in found):
        return DONE
    proof = not_fitting(whole, problem, constraint) or "nothing feasible found, nor a proof that there is nothing"
    terminal.warn(f"gnnplace compare: {proof}")
    return NOTHING_FEASIBLE


def _policies(chosen: argparse.Namespace) -> dict[str, Planner]:
    """The policies of the checkpoints, as planners under their names; with their paths where several have one name."""
    if not chosen.checkpoint:
        return {}
    from gnnplace.training.run import zero_shot  # PyTorch takes seconds to import

    policies = {path: zero_shot.planner(path, chosen.seed, chosen.samples) for path in chosen.checkpoint}
    names = [f"{each.name} ({each.encoder}), zero-shot" if each.encoder else f"{each.name}, zero-shot" for each in policies.values()]
    paths = zip(names, policies, strict=True)
    return {name if names.count(name) == 1 else f"{name}, {path}": policies[path] for name, path in paths}


def _slower(found: Sequence[Candidate]) -> dict[str, str]:
    return slower_than_one_device({each.planner: each.result.feasible_ns for each in found if each.placement.fusion is None})


def _document(problem: Problem, chosen: argparse.Namespace, found: list[Candidate], prices: Mapping[str, int | None]) -> dict[str, Any]:
    rows = [candidate.row(problem) for candidate in found]
    return {
        "graph": problem.graph.name,
        "cluster": problem.cluster.name,
        "ops": problem.num_ops,
        "bound_ns": lower_bound(problem),
        "schedule": chosen.schedule,
        "bound": bound_name(problem),
        "fused_bound_ns": lower_bound(problem, fusion=True) if candidate_table.some_fused(found) else None,
        "constraint": asdict(inputs.constraint(chosen)),
        "planners": [row | {"op_step_time_ns": prices[row["planner"]]} if row["planner"] in prices else row for row in rows],
        "slower_than_one_device": _slower(found),
        "missing": planners.missing(),
    }


def _print(problem: Problem, found: list[Candidate], prices: Mapping[str, int | None], constraint: Constraint) -> None:
    results = [candidate.result for candidate in found]
    peaks = [None if result.peak_memory_bytes is None else int(result.peak_memory_bytes.max()) for result in results]
    more = [
        *_price(found, prices),
        ("peak\nMiB", *(terminal.NONE if peak is None else f"{peak / 2**20:,.1f}" for peak in peaks)),
        ("sent\nMiB", *(f"{result.transferred_bytes / 2**20:,.1f}" for result in results)),
        ("planning\nms", *(f"{candidate.planning_ns / 1e6:,.1f}" for candidate in found)),
    ]
    candidate_table.print_table(problem, found, more)
    if constraint != Constraint():
        terminal.say(f"constraint: {constraint}; without: the same planner, bound by nothing; price: what the constraint makes of that")
    if constraint.granularity == "stage":
        terminal.say("stages: of every planner but `stages` the nearest stages to what it proposes; best searches their cuts")
    candidate_table.print_reasons("slower than the best single device", _slower(found))
    for name, how in planners.missing().items():
        terminal.say(f"{name}: {how}")


def _price(found: list[Candidate], prices: Mapping[str, int | None]) -> list[candidate_table.Column]:
    """The step time without the constraint, and what the constraint makes of it; no columns where there is none."""
    if not prices:
        return []
    free = [prices.get(candidate.planner) for candidate in found]
    ratio = [
        terminal.NONE if before is None or candidate.step_time_ns is None else f"{candidate.step_time_ns / before:.3f}"
        for candidate, before in zip(found, free, strict=True)
    ]
    return [
        ("without\nms", *(terminal.NONE if before is None else f"{before / 1e6:,.3f}" for before in free)),
        ("price", *ratio),
    ]
