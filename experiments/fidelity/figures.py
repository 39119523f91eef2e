"""The figures of fidelity: how measured and simulated step times and memory agree, over the placements of each workload and over all."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments import results
from gnnplace.execution.timing import ratio

WORKLOADS = {
    "torch": ("two_tower", "dlrm_clicks", "gru_language", "bert", "mixture_of_experts", "deep_speech_2", "inception", "unet"),
    "tensorflow": ("towers", "experts", "branches", "attention", "rnnlm", "nmt", "deep_and_cross", "clip"),
}
LEAST = {"spearman": 0.9, "spearman_near": 0.7}  # the bars that were set
MOST = {"choice_over_best": 1.05, "median_error": 0.15, "largest_memory_error": 0.10}
TURN_STEPS = 2  # of each placement
NEAR = 1.5  # "near the best": measured within this many times the fastest
HEADER = ["workload", "ops", "placements (distinct)", "one core, ms", "fastest, ms", "Spearman", f"within {NEAR} x", "choice / best",
          "median error", "largest error", "memory, median", "memory, largest (over 10 %; in every step)",
          "cores apart", "halves"]  # fmt: skip


def figures(executor: str, workloads: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of each workload, of all together, and what the schedule is worth."""
    per = {name: of(found["rows"]) | {"ops": found["ops"]} for name, found in workloads.items()}
    errors = [error for name in per for error in per[name]["errors"]]
    memory = [error for name in per for error in per[name]["memory_errors"]]
    schedule = {name: worth for name, found in workloads.items() if (worth := schedules(found["rows"]))}
    return {
        "executor": executor, "workloads": per, "schedules": schedule, "spearman": _pooled(workloads),
        "median_error": float(np.median(errors)) if errors else None, "memory_error": float(np.median(memory)) if memory else None,
        "largest_memory_error": max(memory, default=None),
    }  # fmt: skip


def of(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one workload's placements."""
    measured = medians(rows)
    simulated = np.array([row["simulated_ns"] for row in rows.values()], dtype=float)
    near = measured <= NEAR * measured.min()
    errors = np.abs(simulated - measured) / measured
    memory = [_memory_error(row) for row in rows.values()]
    return {
        "placements": len(rows), "distinct": len(set(map(_plan, rows.values()))),
        "one_core_ns": float(measured[:2].min()), "fastest_ns": float(measured.min()),
        "fastest": list(rows)[int(measured.argmin())], "chosen": list(rows)[int(simulated.argmin())],
        "spearman": _spearman(measured, simulated), "near": int(near.sum()), "spearman_near": _spearman(measured[near], simulated[near]),
        "choice_over_best": float(measured[simulated.argmin()] / measured.min()),
        "errors": errors.tolist(), "median_error": float(np.median(errors)), "largest_error": float(errors.max()),
        "memory_errors": memory, "memory_error": float(np.median(memory)), "largest_memory_error": max(memory),
        "memory_over": sum(error > MOST["largest_memory_error"] for error in memory),
        "memory_always_over": sum(min(_memory_errors(row)) > MOST["largest_memory_error"] for row in rows.values()),
        "cores_apart": float(abs(measured[1] / measured[0] - 1)), "halves": _halves(rows),
        "difference": max(row["difference"]["largest"] for row in rows.values()),
    }  # fmt: skip


def medians(rows: Mapping[str, Any], half: int | None = None) -> np.ndarray:
    """The measured step time of each placement, of every other turn from turn `half` on where that is given. Those that came out equal are
    one placement, measured in several processes.
    """
    steps: dict[tuple[Any, ...], list[int]] = {}
    for row in rows.values():
        turns = [row["step_ns"][at : at + TURN_STEPS] for at in range(0, len(row["step_ns"]), TURN_STEPS)]
        steps.setdefault(_plan(row), []).extend(chain(*(turns if half is None else turns[half::2])))
    return np.array([np.median(steps[_plan(row)]) for row in rows.values()])


def _halves(rows: Mapping[str, Any]) -> float | None:
    """How sure the ranks are: those of every other turn against those of the turns between."""
    twice = all(len(row["step_ns"]) > TURN_STEPS for row in rows.values())
    return _spearman(medians(rows, 0), medians(rows, 1)) if twice else None


def _plan(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["device"], *row["order"]


def schedules(rows: Mapping[str, Any]) -> dict[str, Any]:
    """For each placement that was measured under both schedules: fifo's time over critical-path's, measured and simulated."""
    found = {}
    for name, row in rows.items():
        placed, _, schedule = name.rpartition(", ")
        other = rows.get(f"{placed}, critical-path")
        if schedule == "fifo" and other is not None:
            measured = ratio(row["step_ns"], other["step_ns"])
            found[placed] = {"measured": measured._asdict(), "simulated": row["simulated_ns"] / other["simulated_ns"]}
    return found


def misses(found: Mapping[str, Any]) -> list[str]:
    """The figures of a workload that miss a bar."""
    low = [name for name, least in LEAST.items() if found[name] is None or found[name] < least]
    return [f"{name} {_number(found[name])}" for name in [*low, *(name for name, most in MOST.items() if found[name] > most)]]


def table(found: Mapping[str, Any]) -> str:
    """Markdown: a line a workload, then what the schedule is worth."""
    lines = [
        [
            name, f"{f['ops']:,}", f"{f['placements']} ({f['distinct']})", f"{f['one_core_ns'] / 1e6:.1f}",
            f"{f['fastest_ns'] / 1e6:.1f} ({f['fastest']})",
            _number(f["spearman"]), f"{_number(f['spearman_near'])} ({f['near']})", f"{f['choice_over_best']:.3f}",
            f"{f['median_error']:.1%}", f"{f['largest_error']:.1%}", f"{f['memory_error']:.1%}",
            f"{f['largest_memory_error']:.1%} ({f['memory_over']}; {f['memory_always_over']})",
            f"{f['cores_apart']:.1%}", _number(f["halves"]),
        ]
        for name, f in found["workloads"].items()
    ]  # fmt: skip
    worth = [
        [name, placed, f"{w['measured']['median']:.3f} [{w['measured']['low']:.3f}, {w['measured']['high']:.3f}]", f"{w['simulated']:.3f}"]
        for name, placements in found["schedules"].items()
        for placed, w in placements.items()
    ]
    header = ["workload", "placement", "fifo / critical-path, measured", "simulated"]
    overall = ""
    if found["workloads"]:
        memory = f"memory {found['memory_error']:.1%} (largest {found['largest_memory_error']:.1%})"
        overall = f"All placements: Spearman {_number(found['spearman'])}, median error {found['median_error']:.1%}, {memory}.\n"
        overall += "".join(f"`{name}` misses {', '.join(missed)}.\n" for name, f in found["workloads"].items() if (missed := misses(f)))
    return "\n".join([results.markdown_table(HEADER, lines), overall, results.markdown_table(header, worth)])


def _pooled(workloads: Mapping[str, Any]) -> float | None:
    """The rank correlation over all placements of all workloads, each time relative to the workload's on one core."""
    measured, simulated = [], []
    for found in workloads.values():
        own = medians(found["rows"])
        measured += (own / own[:2].min()).tolist()
        simulated += (np.array([row["simulated_ns"] for row in found["rows"].values()]) / own[:2].min()).tolist()
    return _spearman(np.array(measured), np.array(simulated))


def _memory_error(row: Mapping[str, Any]) -> float:
    """The larger error of the devices' peaks, relative to what was measured: the median of the steps."""
    return _memory_errors({**row, "peak_memory_bytes": [np.median(row["peak_memory_bytes"], axis=0)]})[0]


def _memory_errors(row: Mapping[str, Any]) -> list[float]:
    """The larger error of the devices' peaks in each step."""
    simulated, measured = np.array(row["simulated_peak_bytes"]), np.array(row["peak_memory_bytes"])
    return (np.abs(simulated - measured) / np.maximum(1, measured)).max(axis=1).tolist()


def _spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    return float(spearmanr(one, other).statistic) if len(one) > 2 else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
