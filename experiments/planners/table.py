"""The tables of planners at one budget: over all problems, problem by problem, and of ablations."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments import results
from experiments.cells import Cell
from experiments.encoders.intervals import compared, geometric

Problems = Sequence[tuple[str, str]]  # graphs and clusters
Found = dict[str, Cell]

REFERENCE = "hill-climb"  # a plain search that every planner is compared with on its own problems
SEARCHED = ("hill-climb", "annealing", "annealing, from heuristics", "improver, of the corpus")  # they cut bad steps off, untimed
HEADER = [
    "planner", "problems", "over the best heuristic", "over the bound", f"over {REFERENCE}", "evaluations to within 5 % of its best",
    "processor s to that", "processor s in all", "evaluations", "infeasible", "given",
]  # fmt: skip


def budget(found: Found, problems: Problems, planners: Sequence[str], evaluations: int) -> str:
    """Both tables of a budget; empty where nothing is computed."""
    known = [planner for planner in planners if any(cells_of(found, problem, planner, evaluations) for problem in problems)]
    seen = [problem for problem in problems if any(cells_of(found, problem, planner, evaluations) for planner in known)]
    if not known:
        return ""
    over = [summary(found, seen, planner, evaluations) for planner in known]
    header = ["planner", *(f"{graph}, {cluster}" for graph, cluster in seen)]
    each = [[planner, *(ratio(found, problem, planner, evaluations) for problem in seen)] for planner in known]
    best = ["best heuristic, ms", *(f"{ms(heuristic(found, problem)[1])} ({heuristic(found, problem)[0]})" for problem in seen)]
    bound = ["bound", *(f"{bound_ns(found, problem) / heuristic(found, problem)[1]:.3f}" for problem in seen)]
    title = f"{evaluations:,} evaluations"
    return (
        f"## {title}\n\n{results.markdown_table(HEADER, over)}\n"
        f"### {title}: step time over the best heuristic\n\n{results.markdown_table(header, [best, *each, bound])}"
    )


def summary(found: Found, problems: Problems, planner: str, evaluations: int) -> list[str]:
    """A planner's row over the problems where it has a cell: geometric means with intervals, and medians."""
    cells = {problem: made for problem in problems if (made := cells_of(found, problem, planner, evaluations))}
    times = {"/".join(problem): [cell.get("best_ns") for cell in made] for problem, made in cells.items()}
    families = {"/".join(problem): family(problem[0]) for problem in problems}
    below = [
        {"/".join(problem): [heuristic(found, problem)[1]] for problem in cells},
        {"/".join(problem): [bound_ns(found, problem)] for problem in cells},
        {
            "/".join(problem): [median] if (median := middle(cells_of(found, problem, REFERENCE, evaluations), "best_ns")) else []
            for problem in cells
        },
    ]
    means = [geometric(compared(times, other), families) for other in below]
    every = [cell for made in cells.values() for cell in made]
    figures = [
        number(middle(every, key), form) for key, form in (("near_evaluations", ",.0f"), ("near_seconds", ",.1f"), ("seconds", ",.1f"))
    ]
    spent = number(middle(every, "evaluations"), ",.0f")
    shares = [cell["infeasible"] / cell["evaluations"] for cell in every if cell.get("evaluations")]
    infeasible = f"{100 * statistics.fmean(shares):.0f} %" if shares and planner not in SEARCHED else "-"
    given = number(middle([cell["given"] for cell in every if cell.get("given", {}).get("evaluations")], "evaluations"), ",.0f")
    return [planner, str(len(cells)), *(str(mean) if mean else "-" for mean in means), *figures, spent, infeasible, given]


def ablation(found: Found, title: str, columns: Sequence[str], problems: Problems, evaluations: int) -> str:
    """One row a column, and the step time over that of the first; empty where nothing but that one is computed."""
    if not any(cells_of(found, problem, column, evaluations) for problem in problems for column in columns[1:]):
        return ""
    header = ["column", *(f"{graph}, {cluster}: {what}" for graph, cluster in problems for what in ("ms", "over the first", "processor s"))]
    rows = [[column, *(part for problem in problems for part in _of_ablation(found, problem, column, columns[0], evaluations))]
            for column in columns]  # fmt: skip
    return f"## {title}\n\n{results.markdown_table(header, rows)}"


def _of_ablation(found: Found, problem: tuple[str, str], column: str, first: str, evaluations: int) -> list[str]:
    cells, others = cells_of(found, problem, column, evaluations), cells_of(found, problem, first, evaluations)
    base = middle(others, "best_ns")
    times = known(cells, "best_ns")
    return [
        spread([each / 1e6 for each in times], ".2f") if times or not cells else nothing(cells),
        spread([each / base for each in times], ".3f") if base else "-",
        number(middle(cells, "seconds"), ",.0f"),
    ]


def ratio(found: Found, problem: tuple[str, str], planner: str, evaluations: int) -> str:
    """The median over seeds of the best step time over the best heuristic's [least - most]."""
    cells = cells_of(found, problem, planner, evaluations)
    times = known(cells, "best_ns")
    if cells and not times:
        return nothing(cells)
    return spread([each / heuristic(found, problem)[1] for each in times], ".3f")


def nothing(cells: Sequence[Cell]) -> str:
    """Why no time is known of cells."""
    return "no update fits" if any(cell.get("updates") == 0 for cell in cells) else "none fits"


def cells_of(found: Found, problem: tuple[str, str], planner: str, evaluations: int) -> list[Cell]:
    """The cells of all seeds."""
    start = "/".join((*problem, planner, str(evaluations), ""))
    return [cell for name, cell in sorted(found.items()) if name.startswith(start)] if f"{'/'.join(problem)}/heuristics" in found else []


def heuristic(found: Found, problem: tuple[str, str]) -> tuple[str, int]:
    """The fastest heuristic and its step time."""
    times = found["/".join((*problem, "heuristics"))]["heuristics"]
    return min(((name, each) for name, each in times.items() if each is not None), key=lambda pair: pair[1])


def bound_ns(found: Found, problem: tuple[str, str]) -> int:
    """No placement is faster."""
    return int(found["/".join((*problem, "heuristics"))]["bound_ns"])


def family(graph: str) -> str:
    """A graph without its batch: the batches of one network are no independent evidence."""
    return graph.rsplit("-b", 1)[0] if graph.rsplit("-b", 1)[-1].isdigit() else graph


def known(cells: Sequence[Cell], key: str) -> list[float]:
    return [cell[key] for cell in cells if cell.get(key) is not None]


def middle(cells: Sequence[Cell], key: str) -> int | float | None:
    """The median of what is known."""
    return statistics.median(values) if (values := known(cells, key)) else None


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:.2f}"


def spread(values: Sequence[float], form: str) -> str:
    """The median, and the range where there is one."""
    if not values:
        return "-"
    median = format(statistics.median(values), form)
    return median if len(values) == 1 else f"{median} [{min(values):{form}} - {max(values):{form}}]"
