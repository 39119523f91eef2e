"""The table of zero-shot cells: geometric means over problems, with intervals over families of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from experiments import results
from gnnplace.corpus import manifest

WITH_ROOM, WORSE, BOOTSTRAPS, CONFIDENCE = 1.05, 1.02, 2000, (2.5, 97.5)
INFEASIBLE = 10.0  # what a method counts as that found nothing feasible


def table(found: Mapping[str, Any]) -> str:
    """Step time over the best heuristic's by method and evaluations, [95 % by bootstrap over families], share worse than 1.02, lineages."""
    rows = ratios(found)
    methods, lineages = list(rows[0][2]), sorted({lineage for _, lineage, _ in rows})
    marks = list(next(iter(rows[0][2].values())))
    lines = []
    for method in methods:
        for mark in marks:
            families = [family for family, _, _ in rows]
            logs = np.log([values[method][mark] for _, _, values in rows])
            of = [np.exp(logs[[place for place, row in enumerate(rows) if row[1] == lineage]].mean()) for lineage in lineages]
            low, high = interval(families, logs)
            worse = float(np.mean(logs > np.log(WORSE)))
            mean = f"{np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]"
            lines.append([method, mark, mean, f"{worse:.0%}", *(f"{each:.3f}" for each in of)])
    header = ["method", "evaluations", "over the best heuristic", f"worse than {WORSE}", *lineages]
    fits = [row for row in rows if row[2]["start"][marks[0]] < INFEASIBLE]
    said = f"{len(rows)} problems with room. What finds nothing feasible counts as {INFEASIBLE:g}."
    if len(fits) < len(rows):
        last = {method: np.exp(np.mean([np.log(values[method][marks[-1]]) for *_, values in fits])) for method in methods}
        listed = ", ".join(f"{name} {ratio:.3f}" for name, ratio in last.items())
        said += f"\nWhere a start fits, on {len(fits)} of them, after {marks[-1]}: {listed}."
    return f"{said}\n\n" + results.markdown_table(header, lines)


def ratios(found: Mapping[str, Any]) -> list[tuple[str, str, dict[str, dict[str, float]]]]:
    """For each problem with room its family, its lineage, and by method and mark the geometric mean over seeds of the ratio."""
    entries = {entry.name: entry for entry in manifest.entries()}
    of: dict[str, list[dict[str, Any]]] = {}
    for key, cell in found["cells"].items():
        of.setdefault(key.rpartition("/")[0], []).append(cell)
    rows = []
    for name, cells in sorted(of.items()):
        heuristic = cells[0]["heuristic_ns"]
        if heuristic is None or heuristic < WITH_ROOM * cells[0]["bound_ns"]:
            continue
        entry = entries[name.partition("/")[0]]
        methods = ["start", *found["settings"]["methods"]]
        values = {
            method: {mark: _mean([cell[method][mark] for cell in cells], heuristic) for mark in cells[0][method] if mark != "seconds"}
            for method in methods
        }
        rows.append((entry.name.split("-")[0], entry.lineage, values))
    return rows


def _mean(times: Sequence[int | None], heuristic: int) -> float:
    return float(np.exp(np.mean([np.log(INFEASIBLE if time is None else time / heuristic) for time in times])))


def interval(families: Sequence[str], logs: Float64[np.ndarray, " problems"]) -> tuple[float, float]:
    """Of the geometric mean, by bootstrap over families: the problems of a family stay together."""
    generator, names = np.random.default_rng(0), sorted(set(families))
    of = [logs[[place for place, family in enumerate(families) if family == name]] for name in names]
    drawn = [np.concatenate([of[index] for index in generator.integers(len(of), size=len(of))]).mean() for _ in range(BOOTSTRAPS)]
    low, high = np.percentile(drawn, CONFIDENCE)
    return float(np.exp(low)), float(np.exp(high))
