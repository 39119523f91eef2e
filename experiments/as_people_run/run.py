"""Steps as people run them: every published rule and `best` on steps of several micro-batches, over a bound that holds for all.

    python -m experiments.as_people_run.run [--graphs ...] [--clusters ...] [--micro-batches 8 ...] [--tables | --bounds | --rules ...]

Cells are computed one process a core and kept: what is there is not computed again. `--tables` only writes the tables anew, `--bounds`
the bounds of the cells that are there and the tables, `--rules` the steps of these rules.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from experiments import results
from experiments.cells import Cell, Job, compute
from gnnplace.baselines.data_parallel.ddp import replicated_on
from gnnplace.baselines.data_parallel.shares import shares
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.clock import processor_s
from gnnplace.bounds.bounds import bound_of_forms, bound_of_forms_name, bound_without_cpus, lower_bound
from gnnplace.costs.roofline import problem
from gnnplace.portfolio import forms
from gnnplace.portfolio.candidates import Candidate, candidate
from gnnplace.portfolio.comparison import best
from gnnplace.portfolio.planners import PIPELINES, planner
from gnnplace.portfolio.portfolio import Options
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs
from gnnplace.transformations.parallelism import Parallelism

HERE = Path(__file__).resolve().parent
CELLS = HERE / "results" / "as_people_run.json"
GRAPHS = (
    "transformer-xl-4", "llama-1b", "moe-8e", "t5-base", "bert-base", "gpt2", "gpt2-medium", "vit-b16", "resnet-50", "inception-v3-b32",
    "unet", "nmt-2", "gnmt-2", "dlrm",
)  # fmt: skip
CLUSTERS = (
    "k40-4", "v100-8", "mixed-4", "h200-8", "2 nodes of 4x h100-sxm, nvlink4, infiniband-ndr", "2x rtx-4090 + 1x rtx-3090, pcie4",
    "2 nodes of 2x t4, pcie3, ethernet-10",
)  # fmt: skip
MICRO_BATCHES = (8, 4, 16, 1)
RULES = [name for name in forms.RULES if name != "one-card"]  # which is a column of its own, of one micro-batch, too
ONE_CARD, LAYERS = "one card", "equal layers"  # micro-batches in turn; a run of layers on each card, one micro-batch after another
SECONDS = 20.0
NEAR = 1.05


def measured(graph: str, cluster: str, micro_batches: int, seconds: float) -> Cell:
    """What each rule and `best` take on one step, their peaks, and a bound on every form of it."""
    step = posed(graph, cluster, micro_batches)
    start = time.perf_counter()
    rules = [_one_card(step), _equal_layers(step)]
    if micro_batches > 1:
        rules += [*forms.by_rules(step, simulate), *forms.by_pipelines(step, simulate)]
    ours = list(forms.by_ours(step, simulate)) if micro_batches > 1 else []
    rules_s, start = time.perf_counter() - start, time.perf_counter()
    ran = [*rules[2:], *ours]
    allowed = Budget(seconds=seconds, clock=processor_s, bound_ns=lower_bound(step))  # the machine is at other work, too
    winner = best(step, allowed, Options(forms=True), ran)
    return {
        "graph": graph, "cluster": cluster, "micro_batches": micro_batches, "ops": step.num_ops, **bound(step),
        "rules": {rule.planner: row(rule) for rule in rules}, "best": row(winner) | {"by": winner.planner},
        "rules_s": round(rules_s, 1), "best_s": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def posed(graph: str, cluster: str, micro_batches: int) -> Problem:
    """A step of a graph of the corpus, under roofline costs."""
    return problem(Parallelism(micro_batches).of(graphs.graph(graph)), graphs.cluster(cluster))


def bound(posed: Problem) -> Cell:
    """A bound on every form of a step, and one on those that use accelerators alone, as people do."""
    return {"bound_ns": bound_of_forms(posed), "bound": bound_of_forms_name(posed), "accelerators_ns": bound_without_cpus(posed)}


def with_bounds() -> dict[str, Cell]:
    """The cells that are kept, with their bounds computed anew and saved."""
    document = results.load(CELLS)
    cells: dict[str, Cell] = document["cells"]
    for name, cell in cells.items():
        cell |= bound(posed(cell["graph"], cell["cluster"], cell["micro_batches"]))
        results.save(CELLS, document)
        print(name, cell["bound_ns"], cell["bound"], flush=True)
    return cells


def with_rules(names: Sequence[str], jobs: Mapping[str, Job]) -> dict[str, Cell]:
    """The cells that are kept, with these rules computed anew and saved."""
    document, rows = results.load(CELLS), CELLS.with_name("rules.json")
    cells: dict[str, Cell] = document["cells"]
    kept = {name: (ruled, (*values[:3], names)) for name, (_, values) in jobs.items() if name in cells and values[2] > 1}
    for name, cell in compute(rows, kept, {"rules": [*names]}).items():
        made = {"commit": cell["commit"]}
        cells[name]["rules"] |= {rule: row | made for rule, row in cell["rules"].items()}
    results.save(CELLS, document)
    rows.unlink()
    return cells


def ruled(graph: str, cluster: str, micro_batches: int, names: Sequence[str]) -> Cell:
    """What some rules take on one step; nothing where they do not apply."""
    step = posed(graph, cluster, micro_batches)
    proposed = (forms.again(name, step, micro_batches, simulate) for name in names)
    return {"rules": {rule.planner: row(rule) for rule in proposed if rule is not None}}


def _one_card(posed: Problem) -> Candidate:
    if posed.graph.copies is None:
        return candidate(posed, simulate, ONE_CARD, planner("gpu", simulate, 0, "memory")(posed))
    *_, alone = shares(posed)
    form, placement = replicated_on(posed, alone)
    return replace(candidate(form, simulate, ONE_CARD, placement), form=form)


def _equal_layers(posed: Problem) -> Candidate:
    return candidate(posed, simulate, LAYERS, planner("expert", simulate, 0, "memory")(posed))


def row(rule: Candidate) -> Cell:
    """What a rule takes, and the form of its step."""
    copies = None if rule.form is None else rule.form.graph.copies
    peaks = rule.result.peak_memory_bytes
    return {
        "step_ns": rule.result.step_time_ns, "infeasible": rule.result.infeasible, "planning_ms": rule.planning_ns // 10**6,
        "peak_bytes": None if peaks is None else int(peaks.max()), "form": None if copies is None else copies.placed,
        "shares": None if copies is None else list(copies.shares),
    }  # fmt: skip


def ratio(row: Cell | None, cell: Cell) -> str:
    """A row's step over the bound; `-` where the rule does not apply, `no room` where it does not fit."""
    if row is None:
        return "-"
    return "no room" if row["infeasible"] or row["step_ns"] is None else f"{row['step_ns'] / cell['bound_ns']:.2f}"


def first(cell: Cell) -> int | None:
    """The step of the fastest rule that fits, one card and equal layers among them; None if none does."""
    row = fastest(cell, tuple(cell["rules"]))
    return None if row is None else int(row[1]["step_ns"])


def fastest(cell: Cell, names: Sequence[str]) -> tuple[str, Cell] | None:
    """The fastest of some rules that fits."""
    fits = {name: row for name, row in cell["rules"].items() if name in names and not row["infeasible"] and row["step_ns"]}
    return min(fits.items(), key=lambda item: item[1]["step_ns"]) if fits else None


def tables(cells: Sequence[Cell]) -> str:
    """A table for each cluster and number of micro-batches, and what they say together."""
    parts = [summary(cells)]
    for cluster in CLUSTERS:
        for number in sorted({cell["micro_batches"] for cell in cells}):
            of = [cell for cell in cells if cell["cluster"] == cluster and cell["micro_batches"] == number]
            some = sorted(of, key=lambda cell: GRAPHS.index(cell["graph"]))
            if some:
                parts.append(f"## {cluster}, M = {number}\n\n{_table(some)}")
    return "\n".join(parts)


def _table(cells: Sequence[Cell]) -> str:
    rows = []
    for cell in cells:
        pipeline = fastest(cell, tuple(PIPELINES))
        shown = [ratio(cell["rules"].get(name), cell) for name in (ONE_CARD, LAYERS, *RULES)]
        staged = "-" if cell["micro_batches"] == 1 else "no room" if pipeline is None else f"{ratio(pipeline[1], cell)} ({pipeline[0]})"
        winner = cell["best"]
        form = "" if winner["form"] is None else f", {winner['form']}"
        alone = cell.get("accelerators_ns")
        peak = "-" if winner["peak_bytes"] is None else f"{winner['peak_bytes'] / 2**30:.1f}"
        rows.append([
            cell["graph"], f"{cell['bound_ns'] / 1e6 / cell['micro_batches']:.2f}",
            "-" if alone is None else f"{alone / cell['bound_ns']:.2f}", *shown, staged,
            f"**{ratio(winner, cell)}** ({winner['by'].removeprefix('best: ').split(' from ')[0]}{form})", peak,
        ])  # fmt: skip
    return results.markdown_table(
        ["graph", "bound, ms a micro-batch", "without CPUs", ONE_CARD, LAYERS, *RULES, "best pipeline", "`best`", "its peak, GiB"], rows
    )


def summary(cells: Sequence[Cell]) -> str:
    """How often people's rules are all that one needs, and what `best` adds."""
    several = [cell for cell in cells if cell["micro_batches"] > 1]
    ruled = {id(cell): step for cell in several if (step := first(cell)) is not None}
    both = [cell for cell in several if id(cell) in ruled and not cell["best"]["infeasible"]]
    gains = [cell["best"]["step_ns"] / ruled[id(cell)] for cell in both]
    near = sum(ruled[id(cell)] <= NEAR * cell["bound_ns"] for cell in both)
    worse = sum(gain > 1 for gain in gains)
    only = sum(id(cell) not in ruled and not cell["best"]["infeasible"] for cell in several)
    nothing = sum(id(cell) not in ruled and bool(cell["best"]["infeasible"]) for cell in several)
    lines = [
        f"Of {len(several)} steps of several micro-batches the best rule that fits takes at most {NEAR} times the bound on {near}.",
        f"`best` is no worse than the best rule on {len(both) - worse} of {len(both)}; it takes "
        f"{median(gains) if gains else 1:.3f} times as long in the median, at most 0.95 times on {sum(gain <= 0.95 for gain in gains)}.",
        f"On {only} no rule fits and `best` does; on {nothing} nothing fits.",
        *_without_cpus(several),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _without_cpus(cells: Sequence[Cell]) -> list[str]:
    """How near `best` comes to a bound on what accelerators alone can do."""
    over = [cell["best"]["step_ns"] / cell["accelerators_ns"] for cell in cells if "accelerators_ns" in cell and cell["best"]["step_ns"]]
    if not over:
        return []
    near, below = (sum(each <= most for each in over) for most in (NEAR, 1))
    return [f"Without CPUs the bound is larger: of {len(over)} steps `best` is within {NEAR} of that on {near}, and below it on {below}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--clusters", nargs="+", choices=CLUSTERS, default=CLUSTERS)
    parser.add_argument("--micro-batches", nargs="+", type=int, choices=MICRO_BATCHES, default=MICRO_BATCHES)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--bounds", action="store_true")
    parser.add_argument("--rules", nargs="+", choices=[*RULES, *PIPELINES])
    chosen = parser.parse_args()
    jobs = {
        f"{graph}/{cluster}/{number}": (measured, (graph, cluster, number, SECONDS))
        for number in chosen.micro_batches
        for cluster in chosen.clusters
        for graph in chosen.graphs
    }
    if chosen.bounds or chosen.rules:
        cells = with_bounds() if chosen.bounds else with_rules(chosen.rules, jobs)
    else:
        cells = compute(CELLS, {} if chosen.tables else jobs, {"seconds": SECONDS})
    (HERE / "results" / "as_people_run.md").write_text(tables(list(cells.values())))


if __name__ == "__main__":
    main()
