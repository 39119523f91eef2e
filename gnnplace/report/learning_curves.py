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
BOUND = "bound"  # the name of the lower bound among the levels
WIDE = 3  # largest / smallest value from which on an axis is logarithmic

History = Mapping[int, float]  # update -> value


class MeanOverSeeds(NamedTuple):
    """The geometric mean over seeds with its 95 % interval: Student's t of the logarithms.

    With one seed `low` and `high` are the mean.
    """

    mean: float
    low: float
    high: float
    seeds: int


class Rated(NamedTuple):
    """A heuristic or a learned policy with the step time of its placements."""

    name: str
    value: MeanOverSeeds
    learned: bool


def estimate(values: Sequence[float]) -> MeanOverSeeds:
    """The mean of the values of several seeds, which must be positive.

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
    """A figure of means over seeds by update, with horizontal lines at `levels`, by name.

    `lines` has the histories of all seeds, by method and quantity. The first quantity is drawn solid, with its interval
    as a band; the others are dotted.
    """
    quantities, data = list(dict.fromkeys(what for _, what in lines)), list[dict[str, Any]]()
    all_updates, all_values = set[int](), list(levels.values())
    for (method, what), histories in lines.items():
        updates, values = _together(histories)
        all_updates.update(updates)
        means = [estimate(column) for column in values.T.tolist()]
        all_values += [each.mean for each in means]
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
            "type": "scatter", "mode": "lines", "name": plain(name),
            "x": [min(all_updates), max(all_updates)], "y": [level, level],
            "line": {"color": RED if name == BOUND else GREY, "dash": "dot" if name == BOUND else "dash", "width": 1.5},
            "hovertemplate": f"{plain(name)}: %{{y:.4~f}} {unit}<extra></extra>",
        })  # fmt: skip
    axes = {"xaxis": {"title": {"text": "update"}, "gridcolor": "#eceef2"}, "yaxis": _times(unit, all_values)}
    return {"data": data, "layout": _layout(440) | axes}


def beside(rated: Sequence[Rated], bound: float | None, unit: str) -> dict[str, Any]:
    """A figure with a dot for each policy and heuristic, the fastest on top, with intervals over seeds and a bound."""
    ordered = sorted(rated, key=lambda each: each.value.mean)
    values = [each.value.mean for each in rated] + ([] if bound is None else [bound])
    data = [
        _dots([each for each in ordered if each.learned == learned], name, shade, unit)
        for learned, name, shade in ((True, "policies", to_hex("C0")), (False, "heuristics", GREY))
    ]
    names = [plain(each.name) for each in reversed(ordered)]
    layout = _layout(170 + 24 * len(ordered)) | {
        "xaxis": _times(unit, values),
        "yaxis": {"categoryorder": "array", "categoryarray": names, "automargin": True, "ticks": "outside"},
    }
    if bound is not None:
        layout |= _bound_line(bound, _logarithmic(values))
    return {"data": data, "layout": layout}


def _dots(rated: Sequence[Rated], name: str, colour: str, unit: str) -> dict[str, Any]:
    """A dot for each row, with its interval as an error bar."""
    errors = {
        "type": "data", "symmetric": False, "array": [each.value.high - each.value.mean for each in rated],
        "arrayminus": [each.value.mean - each.value.low for each in rated],
    }  # fmt: skip
    return {
        "type": "scatter", "mode": "markers", "x": [each.value.mean for each in rated],
        "y": [plain(each.name) for each in rated], "error_x": errors, "marker": {"color": colour, "size": 9},
        "name": name, "hovertemplate": f"%{{y}}: %{{x:.4~f}} {unit}<extra></extra>",
    }  # fmt: skip


def _bound_line(bound: float, logarithmic: bool) -> dict[str, Any]:
    """The part of a layout that draws the bound as a vertical line with its name."""
    line = {
        "type": "line", "x0": bound, "x1": bound, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": RED, "dash": "dot"},
    }  # fmt: skip
    name = {
        "text": BOUND, "x": float(np.log10(bound)) if logarithmic else bound, "yref": "paper", "y": 1,
        "yanchor": "bottom", "showarrow": False, "font": {"color": RED},
    }  # fmt: skip
    return {"shapes": [line], "annotations": [name]}


def _times(unit: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis of times or their ratios, logarithmic if they differ by more than a factor of `WIDE`."""
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
    """The values of all seeds at the updates of any seed; a seed's value holds until its next one.

    The updates begin where every seed has a value.
    """
    begin = max(min(history) for history in histories)
    updates = sorted({update for history in histories for update in history if update >= begin})
    values = np.empty((len(histories), len(updates)))
    for row, history in enumerate(histories):
        seed_updates = np.array(sorted(history))
        at = seed_updates[np.searchsorted(seed_updates, updates, side="right") - 1]
        values[row] = [history[update] for update in at.tolist()]
    return updates, values
