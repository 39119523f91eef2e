"""Figures of trainings: learning curves with intervals over seeds, and policies beside heuristics and the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from matplotlib import colormaps
from matplotlib.colors import to_hex, to_rgb
from scipy import stats

from gnnplace.report.page import plain

CONFIDENCE = 0.95
GREY, RED = "#667085", "#d92d20"
BOUND = "bound"  # the level that nothing passes
WIDE = 3  # times as much at the end of a logarithmic axis as at its beginning

History = Mapping[int, float]  # an update and the value there


class MeanOverSeeds(NamedTuple):
    """The geometric mean over seeds with its interval of 95 %: Student's t of the logarithms.

    Of one seed there is no interval, and `low` and `high` are the mean.
    """

    mean: float
    low: float
    high: float
    seeds: int


class Rated(NamedTuple):
    """A planner or a policy with what its placements take."""

    name: str
    value: MeanOverSeeds
    learned: bool


def estimate(values: Sequence[float]) -> MeanOverSeeds:
    """The mean of some seeds' values, which are positive.

    >>> [round(value, 3) for value in estimate([1.0, 10.0, 100.0])]
    [10.0, 0.033, 3048.862, 3]
    """
    logs, count = np.log(values), len(values)
    mean = float(logs.mean())
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * logs.std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0
    low, middle, high = np.exp([mean - half, mean, mean + half]).tolist()
    return MeanOverSeeds(middle, low, high, count)


def colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method, the same in every figure."""
    return {name: to_hex(colormaps["tab10"](number % 10)) for number, name in enumerate(methods)}


def curves(
    lines: Mapping[tuple[str, str], Sequence[History]],
    colour: Mapping[str, str],
    levels: Mapping[str, float],
    unit: str,
) -> dict[str, Any]:
    """A figure of the means over seeds by update; `lines` has a history for each seed, by method and quantity.
    `levels` are horizontal lines, by name.

    The first quantity is drawn solid, with its interval as a band; the others are dotted.
    """
    quantities, data = list(dict.fromkeys(what for _, what in lines)), list[dict[str, Any]]()
    drawn, seen = set[int](), list(levels.values())
    for (method, what), histories in lines.items():
        updates, values = _together(histories)
        drawn.update(updates)
        means = [estimate(column) for column in values.T.tolist()]
        seen += [each.mean for each in means]
        first = what == quantities[0]
        line = {"color": colour[method], "dash": "solid" if first else "dot", "width": 2 if first else 1.2}
        name = plain(f"{method}: {what}" if len(quantities) > 1 else method)
        if len(histories) > 1 and first:
            data.append(_band(updates, means, colour[method], name))
        data.append({
            "type": "scatter", "mode": "lines", "x": updates, "y": [each.mean for each in means], "line": line,
            "name": name, "legendgroup": name,
            "hovertemplate": f"{name}, {len(histories)} seeds, update %{{x}}: %{{y:.4~f}} {unit}<extra></extra>",
        })  # fmt: skip
    for name, level in levels.items():
        data.append({
            "type": "scatter", "mode": "lines", "x": [min(drawn), max(drawn)], "y": [level, level], "name": plain(name),
            "line": {"color": RED if name == BOUND else GREY, "dash": "dot" if name == BOUND else "dash", "width": 1.5},
            "hovertemplate": f"{plain(name)}: %{{y:.4~f}} {unit}<extra></extra>",
        })  # fmt: skip
    axes = {"xaxis": {"title": {"text": "update"}, "gridcolor": "#eceef2"}, "yaxis": _times(unit, seen)}
    return {"data": data, "layout": _layout(440) | axes}


def beside(rated: Sequence[Rated], bound: float | None, unit: str) -> dict[str, Any]:
    """A figure of policies beside heuristics: a dot each, the fastest
    on top, intervals over seeds, the bound as a line.
    """
    ordered = sorted(rated, key=lambda each: each.value.mean)
    seen = [each.value.mean for each in rated] + ([] if bound is None else [bound])
    data = []
    for learned, name, shade in ((True, "policies", to_hex("C0")), (False, "heuristics", GREY)):
        shown = [each for each in ordered if each.learned == learned]
        errors = {
            "type": "data", "symmetric": False, "array": [each.value.high - each.value.mean for each in shown],
            "arrayminus": [each.value.mean - each.value.low for each in shown],
        }  # fmt: skip
        data.append({
            "type": "scatter", "mode": "markers", "x": [each.value.mean for each in shown],
            "y": [plain(each.name) for each in shown],
            "error_x": errors,
            "marker": {"color": shade, "size": 9}, "name": name,
            "hovertemplate": f"%{{y}}: %{{x:.4~f}} {unit}<extra></extra>",
        })  # fmt: skip
    layout = _layout(170 + 24 * len(ordered)) | {
        "xaxis": _times(unit, seen),
        "yaxis": {
            "categoryorder": "array",
            "categoryarray": [plain(each.name) for each in reversed(ordered)],
            "automargin": True,
            "ticks": "outside",
        },
    }
    if bound is not None:
        line = {
            "type": "line",
            "x0": bound,
            "x1": bound,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": RED, "dash": "dot"},
        }
        layout |= {
            "shapes": [line],
            "annotations": [_named(BOUND, float(np.log10(bound)) if _logarithmic(seen) else bound)],
        }
    return {"data": data, "layout": layout}


def _named(name: str, at: float) -> dict[str, Any]:
    return {
        "text": name,
        "x": at,
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": RED},
    }


def _times(unit: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis of times or their ratios, logarithmic where these differ much."""
    axis: dict[str, Any] = {"title": {"text": unit}, "gridcolor": "#eceef2"}
    if not _logarithmic(values):
        return axis
    ticks = [digit * 10.0**power for power in range(-6, 9) for digit in (1, 2, 5)]
    return axis | {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}


def _logarithmic(values: Sequence[float]) -> bool:
    return max(values) > WIDE * min(values)


def _layout(height: int) -> dict[str, Any]:
    legend = {"orientation": "h", "x": 0, "y": 1.06, "yanchor": "bottom"}
    return {"height": height, "margin": {"l": 60, "r": 20, "t": 70, "b": 50}, "legend": legend, "hovermode": "closest"}


def _band(updates: list[int], means: Sequence[MeanOverSeeds], colour: str, name: str) -> dict[str, Any]:
    red, green, blue = (round(255 * part) for part in to_rgb(colour))
    return {
        "type": "scatter", "mode": "none", "x": [*updates, *reversed(updates)], "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.15)",
        "y": [*(each.high for each in means), *(each.low for each in reversed(means))], "hoverinfo": "skip",
        "showlegend": False, "legendgroup": name,
    }  # fmt: skip


def _together(histories: Sequence[History]) -> tuple[list[int], Float64[np.ndarray, "seeds updates"]]:
    """All seeds at the updates of any, from the first on that every seed
    has a value for; a value holds until the seed's next.
    """
    begin = max(min(history) for history in histories)
    updates = sorted({update for history in histories for update in history if update >= begin})
    values = np.empty((len(histories), len(updates)))
    for row, history in enumerate(histories):
        seed_updates = np.array(sorted(history))
        at = seed_updates[np.searchsorted(seed_updates, updates, side="right") - 1]
        values[row] = [history[update] for update in at.tolist()]
    return updates, values
