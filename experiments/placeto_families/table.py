"""Step times on the test members as ratios: a table a family, medians over members with intervals from members drawn again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from experiments import results
from experiments.cells import Cell
from experiments.placeto_families.members import SETS, TEST, names
from experiments.placeto_families.settings import EPISODES, EVALUATIONS, OWN_EVALUATIONS

Found = Mapping[str, Cell]
Times = dict[str, dict[str, list[int | None]]]  # of planners and test members, by seed; None = infeasible

HEURISTIC, ONE_DEVICE, OWN = "best heuristic", "fastest device alone", "Placeto on the graph"
UNTRAINED = f"Placeto, untrained, best of {EPISODES} episodes"
GREEDY, SAMPLED = "Placeto, zero-shot, greedy", f"Placeto, zero-shot, best of {EPISODES} episodes"
HIERARCHICAL = f"hierarchical, zero-shot, best of {EVALUATIONS}"
POLICIES = {  # what a cell of a trained policy says, and how the table calls it
    ("placeto", "untrained", "greedy"): "Placeto, untrained, greedy",
    ("placeto", "untrained", "best sample"): UNTRAINED,
    ("placeto", "trained", "greedy"): GREEDY,
    ("placeto", "trained", "best sample"): SAMPLED,
    ("hierarchical", "untrained", "best sample"): f"hierarchical, untrained, best of {EVALUATIONS}",
    ("hierarchical", "trained", "greedy"): "hierarchical, zero-shot, greedy",
    ("hierarchical", "trained", "best sample"): HIERARCHICAL,
}
DRAWS = 10_000
HEADER = ["planner", "evaluations of a test member", f"over {HEURISTIC}", f"over {ONE_DEVICE}", f"over {OWN}", "seeds"]


def table(found: Found, families: Sequence[str], cluster: str) -> str:
    """A part for each family that has a trained policy."""
    parts = [_part(times(found, family, cluster), family, cluster) for family in families if f"{family}/{cluster}/placeto/0" in found]
    return "\n".join(parts)


def _part(of: Times, family: str, cluster: str) -> str:
    rows = [
        [planner, evaluations(planner), *(interval(ratios(of, planner, below)) for below in (HEURISTIC, ONE_DEVICE, OWN)),
         str(max(len(each) for each in of[planner].values()))]
        for planner in of
    ]  # fmt: skip
    return f"## {family}, {cluster}: {len(of[HEURISTIC])} test members\n\n{results.markdown_table(HEADER, rows)}"


def evaluations(planner: str) -> str:
    """How many placements of a test member a planner has evaluated."""
    match planner:
        case "bound" | "best heuristic" | "fastest device alone":
            return "-"
        case "Placeto on the graph" | "Placeto on the graph, greedy" | "hill climbing, as long":
            return f"{OWN_EVALUATIONS:,}"
        case _:
            return "0" if planner.endswith("greedy") else f"{EVALUATIONS:,}"


def times(found: Found, family: str, cluster: str) -> Times:
    """Of every planner, in the order of the table, what it takes on each test member."""
    made: Times = {}
    for name in names(SETS[family], TEST):
        fixed, own = found[f"{name}/{cluster}/fixed"], found[f"{name}/{cluster}/own/0"]
        searched = _seeds(found, f"{name}/{cluster}/searched/")
        known: dict[str, list[int | None]] = {
            "bound": [fixed["bound_ns"]], HEURISTIC: [min(each for each in fixed["heuristics"].values() if each is not None)],
            ONE_DEVICE: [fixed["one_device_ns"]], "random": [cell["random_ns"] for cell in searched],
            "hill climbing": [cell["hill_climb_ns"] for cell in searched],
        }  # fmt: skip
        for (policy, state, which), planner in POLICIES.items():
            cells = _seeds(found, f"{family}/{cluster}/{policy}/")
            known[planner] = [cell[state][f"{name}.{cluster}"][which] for cell in cells]
        known |= {OWN: [own["best_ns"]], f"{OWN}, greedy": [own["greedy_ns"]], "hill climbing, as long": [own["hill_climb_ns"]]}
        for planner, each in known.items():
            if each:
                made.setdefault(planner, {})[name] = each
    return made


def _seeds(found: Found, start: str) -> list[Cell]:
    return [cell for name, cell in sorted(found.items()) if name.startswith(start)]


def ratios(of: Times, above: str, below: str) -> list[float]:
    """Of each test member the median over seeds; what is infeasible is slower than anything."""
    return [float(np.median([over(each, of[below][name][0]) for each in seeds])) for name, seeds in of[above].items()]


def over(above: int | None, below: int | None) -> float:
    return math.inf if above is None else above / below if below is not None else math.nan


def interval(values: Sequence[float]) -> str:
    """The median over members and its 95 % interval, from members drawn again; the draws are the same every time."""
    drawn = np.median(np.random.default_rng(0).choice(np.array(values), (DRAWS, len(values))), axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975), method="nearest")
    return f"{np.median(values):.3f} [{low:.3f}, {high:.3f}]"
