"""Where people's rules leave room: `best` on the steps of `as_people_run` whose best published rule is over 1.10 of the bound.

    python -m experiments.beyond.run [--graphs ...] [--clusters ...] [--micro-batches 8 ...] [--constrained | --ablations] [--tables]

`--constrained`: in whole modules and in stages, on 24 of the steps. `--ablations`: on the same, without a part of the search.

Cells are computed one process a core and kept. `--tables` only writes the tables anew.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import exp, log
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from experiments import results
from experiments.as_people_run import run as people
from experiments.cells import Cell, compute
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.clock import processor_s
from gnnplace.bounds.bounds import lower_bound
from gnnplace.constraints import Constrained, Constraint, constrained
from gnnplace.portfolio import best_form, forms
from gnnplace.portfolio.comparison import best
from gnnplace.portfolio.portfolio import Options
from gnnplace.simulator.simulator import simulate
from gnnplace.units.granularity import Granularity

HERE = Path(__file__).resolve().parent
CELLS, CONSTRAINED_CELLS, ABLATION_CELLS = (HERE / "results" / f"{name}.json" for name in ("beyond", "constrained", "ablations"))
SECONDS = (20.0, 60.0)
ROOM = 1.10  # the best published rule over the bound
TELLING = 0.01  # a smaller difference of two searches is noise
NEAR = 1.05  # so near is as good as proved
CONSTRAINED = tuple(
    (graph, cluster, 8)
    for cluster, graphs in {
        "mixed-4": ("gpt2", "vit-b16", "bert-base", "resnet-50", "moe-8e", "dlrm"),
        "2 nodes of 2x t4, pcie3, ethernet-10": ("gpt2", "resnet-50", "moe-8e", "dlrm"),
        "2x rtx-4090 + 1x rtx-3090, pcie4": ("gpt2", "vit-b16", "t5-base", "moe-8e", "dlrm"),
        "k40-4": ("llama-1b", "gpt2-medium", "transformer-xl-4", "moe-8e", "dlrm"),  # no rule fits the first
        "v100-8": ("gpt2-medium", "unet", "nmt-2", "moe-8e"),
    }.items()
    for graph in graphs
)  # steps that are also placed in whole modules and stages
GRANULARITIES: tuple[Granularity, ...] = ("module", "stage")


class Ablation(NamedTuple):
    """A search without a part of it: other constants of `best_form`, other options, or without a rule among its starts."""

    constants: Mapping[str, object] = {}
    options: Options = Options(forms=True)
    without: str | None = None


ABLATIONS: Mapping[str, Ablation] = {
    "all of it": Ablation(),
    "no shares by layer": Ablation(without="layer-shares"),
    "no pipelines in replicas": Ablation(without="dp-pp"),
    "replicas stay whole": Ablation({"LOOSENED": ()}),
    "replicas only anchored": Ablation({"LOOSENED": ("anchored",)}),
    "replicas only free": Ablation({"LOOSENED": ("free",)}),
    "no breadth-first orders": Ablation({"PARTS": ()}),
    "annealing alone": Ablation({"FOR_CLIMB": 0.0}),
    "no learned ranking": Ablation(options=Options(forms=True, search="plain")),
}
UNEQUAL = ("mixed-4", "2x rtx-4090 + 1x rtx-3090, pcie4")


def chosen(cells: Sequence[Cell]) -> list[Cell]:
    """The steps of several micro-batches on which the best published rule leaves room, or no rule fits."""
    several = [cell for cell in cells if cell["micro_batches"] > 1]
    return [cell for cell in several if (first := people.first(cell)) is None or first > ROOM * cell["bound_ns"]]


def measured(graph: str, cluster: str, micro_batches: int, seconds: Sequence[float]) -> Cell:
    """What each rule, our own and `best` take on one step, and a bound on every form of it."""
    posed = people.posed(graph, cluster, micro_batches)
    start = time.process_time()
    published = [*forms.by_rules(posed, simulate), *forms.by_pipelines(posed, simulate)]
    ours = list(forms.by_ours(posed, simulate))
    rules_s = time.process_time() - start
    found = {}
    for limit in seconds:
        allowed = Budget(seconds=limit, clock=processor_s, bound_ns=lower_bound(posed))
        winner = best(posed, allowed, Options(forms=True), [*published, *ours])
        found[f"{limit:g}"] = people.row(winner) | {"by": winner.planner}
    return {
        "graph": graph, "cluster": cluster, "micro_batches": micro_batches, "ops": posed.num_ops, **people.bound(posed),
        "rules": {rule.planner: people.row(rule) for rule in published},
        "ours": {rule.planner: people.row(rule) for rule in ours}, "best": found, "rules_s": round(rules_s, 1),
    }  # fmt: skip


def constrained_cell(graph: str, cluster: str, micro_batches: int, seconds: Sequence[float]) -> Cell:
    """What `best` takes on one step in whole modules and in stages, beside the best rule under the same constraint.

    The bound is that of every form of the step without the constraint.
    """
    posed = people.posed(graph, cluster, micro_batches)
    return {
        "graph": graph, "cluster": cluster, "micro_batches": micro_batches, "ops": posed.num_ops, **people.bound(posed),
        **{granularity: _under(constrained(posed, Constraint(granularity)), seconds) for granularity in GRANULARITIES},
    }  # fmt: skip


def _under(under: Constrained, seconds: Sequence[float]) -> Cell:
    posed, found = under.problem, {}
    rules = list(forms.all_rules(posed, simulate, under.stages))
    for limit in seconds:
        allowed = Budget(seconds=limit, clock=processor_s, bound_ns=lower_bound(posed))
        winner = best(posed, allowed, Options(forms=True, stages=under.stages), rules)
        found[f"{limit:g}"] = people.row(winner) | {"by": winner.planner}
    return {"rules": {rule.planner: people.row(rule) for rule in rules}, "best": found}


def ablated_cell(graph: str, cluster: str, micro_batches: int, seconds: float) -> Cell:
    """What `best` takes on one step without each part of its search."""
    posed, found = people.posed(graph, cluster, micro_batches), {}
    rules = list(forms.all_rules(posed, simulate))
    for name, ablation in ABLATIONS.items():
        allowed = Budget(seconds=seconds, clock=processor_s, bound_ns=lower_bound(posed))
        with ExitStack() as patched:
            for constant, value in ablation.constants.items():
                patched.enter_context(patch.object(best_form, constant, value))
            winner = best(posed, allowed, ablation.options, [rule for rule in rules if rule.planner != ablation.without])
        found[name] = people.row(winner) | {"by": winner.planner}
    return {
        "graph": graph, "cluster": cluster, "micro_batches": micro_batches, **people.bound(posed),
        "rules": {rule.planner: people.row(rule) for rule in rules}, "best": found,
    }  # fmt: skip


def ablation_table(cells: Sequence[Cell]) -> str:
    """What `best` takes without each part of its search: over the bound and over all of it, in the geometric mean."""
    rows = []
    for name in ABLATIONS:
        over = [cell["best"][name]["step_ns"] / cell["bound_ns"] for cell in cells]
        ratios = [cell["best"][name]["step_ns"] / cell["best"]["all of it"]["step_ns"] for cell in cells]
        worse, better = sum(each > 1 + TELLING for each in ratios), sum(each < 1 - TELLING for each in ratios)
        rows.append(
            [name, f"{_mean(over):.3f}", f"{_mean(ratios):.3f}", f"{max(ratios, default=float('nan')):.3f}", str(worse), str(better)]
        )
    return results.markdown_table(["search", "over the bound", "over all of it", "at worst", "over 1 % worse", "over 1 % better"], rows)


def constrained_table(cells: Sequence[Cell]) -> str:
    """`best` in whole modules and in stages over the bound of the step without a constraint, and the best rule that keeps to it."""
    rows = []
    for cell in cells:
        row = [cell["graph"], cell["cluster"]]
        for granularity in GRANULARITIES:
            under = cell[granularity]
            name, rule = people.fastest(under, tuple(under["rules"])) or ("no room", None)
            row.append("no room" if rule is None else f"{people.ratio(rule, cell)} ({name})")
            row += [people.ratio(under["best"][f"{limit:g}"], cell) for limit in SECONDS]
        rows.append(row)
    columns = [f"{each}: {what}" for each in GRANULARITIES for what in ("rule", *(f"`best`, {limit:g} s" for limit in SECONDS))]
    return results.markdown_table(["graph", "machine", *columns], rows)


def _mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(sum(map(log, values)) / len(values)) if values else float("nan")


def tables(cells: Sequence[Cell]) -> str:
    """What `best` gains, by kind of cell, and every cell."""
    return f"{_summary(cells)}\n{_every(cells)}"


def _summary(cells: Sequence[Cell]) -> str:
    kinds: dict[str, Callable[[Cell], bool]] = {
        "all": lambda cell: True,
        "unequal cards": lambda cell: cell["cluster"] in UNEQUAL,
        "equal cards": lambda cell: cell["cluster"] not in UNEQUAL,
        "experts (moe-8e)": lambda cell: cell["graph"] == "moe-8e",
        "tables (dlrm)": lambda cell: cell["graph"] == "dlrm",
    } | {name: lambda cell, name=name: cell["cluster"] == name for name in people.CLUSTERS}
    rows = []
    for kind, belongs in kinds.items():
        some = [cell for cell in cells if belongs(cell) and people.first(cell) is not None]
        if not some:
            continue
        over = [people.first(cell) / cell["bound_ns"] for cell in some]
        alone = _mean([(cell["accelerators_ns"] or cell["bound_ns"]) / cell["bound_ns"] for cell in some])
        row = [kind, str(len(some)), f"{alone:.3f}", f"{_mean(over):.3f}"]
        for limit in SECONDS:
            steps = [cell["best"][f"{limit:g}"]["step_ns"] for cell in some]
            row.append(f"{_mean([step / cell['bound_ns'] for step, cell in zip(steps, some, strict=True)]):.3f}")
        last = [cell["best"][f"{SECONDS[-1]:g}"]["step_ns"] for cell in some]
        ratios = [step / people.first(cell) for step, cell in zip(last, some, strict=True)]
        near = sum(step <= NEAR * cell["bound_ns"] for step, cell in zip(last, some, strict=True))
        left = (_mean([step / cell["bound_ns"] for step, cell in zip(last, some, strict=True)]) - 1) / (_mean(over) - 1)
        rows.append([*row, f"{left:.2f}", f"{_mean(ratios):.3f}", f"{max(ratios, default=float('nan')):.3f}", str(near)])
    header = [
        "cells", "number", "the bound without CPUs", "best rule", *(f"`best`, {limit:g} s" for limit in SECONDS),
        "of the room left", "over the rule", "worst", f"within {NEAR}",
    ]  # fmt: skip
    unfit = [cell for cell in cells if people.first(cell) is None]
    fits = sum(not cell["best"][f"{SECONDS[-1]:g}"]["infeasible"] for cell in unfit)
    return results.markdown_table(header, rows) + f"\nOf {len(unfit)} steps that no published rule fits, `best` fits {fits}.\n"


def _every(cells: Sequence[Cell]) -> str:
    rows = []
    for cell in cells:
        name, rule = people.fastest(cell, tuple(cell["rules"])) or ("no room", None)
        shown = [people.ratio(cell["best"][f"{limit:g}"], cell) for limit in SECONDS]
        ours = " ".join(f"{people.ratio(row, cell)} ({own})" for own, row in cell["ours"].items()) or "-"
        by = cell["best"][f"{SECONDS[-1]:g}"]["by"].removeprefix("best: ")
        ruled = "no room" if rule is None else f"{people.ratio(rule, cell)} ({name})"
        rows.append([cell["graph"], cell["cluster"], str(cell["micro_batches"]), ruled, ours, *shown, by])
    return results.markdown_table(["graph", "machine", "M", "best rule", "ours", *(f"`best`, {s:g} s" for s in SECONDS), "by"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=people.GRAPHS, default=people.GRAPHS)
    parser.add_argument("--clusters", nargs="+", choices=people.CLUSTERS, default=people.CLUSTERS)
    parser.add_argument("--micro-batches", nargs="+", type=int, choices=people.MICRO_BATCHES, default=people.MICRO_BATCHES)
    parser.add_argument("--constrained", action="store_true")
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--tables", action="store_true")
    asked = parser.parse_args()
    if asked.constrained or asked.ablations:
        steps = [step for step in CONSTRAINED if step[0] in asked.graphs and step[1] in asked.clusters]
    if asked.ablations:
        jobs = {"/".join(map(str, step)): (ablated_cell, (*step, SECONDS[0])) for step in steps}
        cells = compute(ABLATION_CELLS, {} if asked.tables else jobs, {"seconds": SECONDS[0]})
        (HERE / "results" / "ablations.md").write_text(ablation_table(list(cells.values())))
        return
    if asked.constrained:
        jobs = {"/".join(map(str, step)): (constrained_cell, (*step, SECONDS)) for step in steps}
        cells = compute(CONSTRAINED_CELLS, {} if asked.tables else jobs, {"seconds": list(SECONDS)})
        (HERE / "results" / "constrained.md").write_text(constrained_table(list(cells.values())))
        return
    steps = [
        (cell["graph"], cell["cluster"], cell["micro_batches"])
        for cell in chosen(list(results.load(people.CELLS)["cells"].values()))
        if cell["graph"] in asked.graphs and cell["cluster"] in asked.clusters and cell["micro_batches"] in asked.micro_batches
    ]
    jobs = {"/".join(map(str, step)): (measured, (*step, SECONDS)) for step in steps}
    cells = compute(CELLS, {} if asked.tables else jobs, {"seconds": list(SECONDS)})
    (HERE / "results" / "beyond.md").write_text(tables(list(cells.values())))


if __name__ == "__main__":
    main()
