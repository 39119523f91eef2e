"""The tables of one policy a graph: what training finds beside its controls, in milliseconds and as the ratios that are asked for."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments import results
from experiments.cells import Cell
from experiments.encoders.single import ENCODERS, GRAPHS, RANDOM

LEARNED = [
    "graph", "encoder", "best sample, ms", "greedy, ms", "greedy / best sample", "best greedy / best sample",
    "best sample / best heuristic", "best sample / expert",
    "best sample / one GPU", "best sample / random", "ops on the fullest device", "minutes",
]  # fmt: skip
CONTROLS = ["graph", "one GPU", "expert", "best heuristic", *RANDOM, "bound"]


def table(found: dict[str, Cell]) -> str:
    """Both tables: medians [least - most] over seeds."""
    controls = results.markdown_table(CONTROLS, [_controls(found, graph) for graph in GRAPHS])
    return controls + "\n" + results.markdown_table(LEARNED, [_learned(found, graph, encoder) for graph in GRAPHS for encoder in ENCODERS])


def _controls(found: dict[str, Cell], graph: str) -> list[str]:
    control = found[f"{graph}/controls"]
    name, best = _best(control)
    randoms = [_ms([cell["best_ns"] for cell in _cells(found, graph, random)]) for random in RANDOM]
    times = [_ms([control["heuristics"][each]]) for each in ("gpu", "expert")]
    return [graph, *times, f"{_ms([best])} ({name})", *randoms, _ms([control["bound_ns"]])]


def _learned(found: dict[str, Cell], graph: str, encoder: str) -> list[str]:
    cells, control = _cells(found, graph, encoder), found[f"{graph}/controls"]
    best, greedy, best_greedy = ([cell[key] for cell in cells] for key in ("best_sample_ns", "greedy_ns", "best_greedy_ns"))
    against = [[_best(control)[1]], *([control["heuristics"][name]] for name in ("expert", "gpu"))]
    random = [cell["best_ns"] for cell in _cells(found, graph, next(iter(RANDOM)))]
    settled = [_ratio(times, best) for times in (greedy, best_greedy)]
    ratios = [*settled, *(_ratio(best, times * len(best)) for times in against), _ratio(best, random)]
    fullest = f"{100 * statistics.median(cell['fullest'] for cell in cells):.0f} %" if cells else "-"
    minutes = f"{statistics.median(cell['seconds'] for cell in cells) / 60:.1f}" if cells else "-"
    return [graph, encoder, _ms(best), _ms(greedy), *ratios, fullest, minutes]


def _cells(found: dict[str, Cell], graph: str, column: str) -> list[Cell]:
    return [cell for name, cell in sorted(found.items()) if name.startswith(f"{graph}/{column}/")]


def _best(control: Cell) -> tuple[str, int]:
    feasible = {name: time for name, time in control["heuristics"].items() if time is not None}
    return min(feasible.items(), key=lambda pair: pair[1])


def _ratio(above: Sequence[float | None], below: Sequence[float | None]) -> str:
    """Seed by seed, where both fit."""
    return spread([a / b for a, b in zip(above, below, strict=False) if a and b], ".3f")


def _ms(times_ns: Sequence[float | None]) -> str:
    known = [time / 1e6 for time in times_ns if time is not None]
    missing = len(times_ns) - len(known)
    return spread(known, ".1f") + (f", {missing} infeasible" if missing else "")


def spread(values: Sequence[float], form: str) -> str:
    """The median, and the least and the most of several."""
    if not values:
        return "-"
    median = format(statistics.median(values), form)
    return median if len(values) == 1 else f"{median} [{min(values):{form}} - {max(values):{form}}]"
