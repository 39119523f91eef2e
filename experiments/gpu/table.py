"""The results of a machine as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.results import markdown_table


def markdown(document: Mapping[str, Any]) -> str:
    """A line for every figure, and for every part that has none."""
    rows = [[part, *line] for part, found in document["parts"].items() for line in _lines(part, found)]
    machine = ", ".join(gpu["name"] for gpu in document["gpus"]) or document["provenance"]["hardware"]["processor"] + ", no GPU"
    return f"{machine}, torch {document['versions']['torch']}\n\n" + markdown_table(["part", "of", "found"], rows)


def _lines(part: str, outcome: Mapping[str, Any]) -> Iterator[list[str]]:
    if outcome["status"] != "done":
        yield ["", f"{outcome['status']}: {outcome['reason']}"]
        return
    for name, found in outcome["found"].items() if part != "profile" else [("attention", outcome["found"])]:
        yield [name, _SAID[part](found)]


def _executor(found: Mapping[str, Any]) -> str:
    if "outcome" in found:
        return f"{found['outcome']}: {found['reason']}"
    return f"largest difference {found['largest']:.1e} from {found['against']} ({'; '.join(found['devices'])})"


def _overhead(found: Mapping[str, Any]) -> str:
    ratio = found["ratio"]
    bar = "" if found["counts"] else "; a step below 20 ms, for which nothing is promised"
    return (
        f"executor / eager {ratio['median']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}], eager {found['eager_ns'] / 1e6:.1f} ms, "
        f"{found['ops']} ops, {found['device']}{bar}"
    )


def _profile(found: Mapping[str, Any]) -> str:
    totals = ", ".join(f"{kind} {total / 1e6:.2f} ms" for kind, total in found["total_ns"].items())
    links = ", ".join(f"{pair} {fit['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s" for pair, fit in found["links"].items())
    return f"{found['ops']} ops: {totals}; {links}"


def _calibration(found: Mapping[str, Any]) -> str:
    return f"median error of an op {found['median_error']:.0%}, of the total {found['total_error']:+.1%}, {found['ops']} ops"


def _fidelity(found: Mapping[str, Any]) -> str:
    return (
        f"Spearman {found['spearman']:.2f}, median error {found['median_error']:.0%}, choice / best {found['choice_over_best']:.2f}, "
        f"{len(found['rows'])} placements on {', '.join(found['devices'])}"
    )


def _training(found: Mapping[str, Any]) -> str:
    return (
        f"{found['updates_per_s']:.2f} updates/s (median of {found['timed']}) without the simulator, which takes "
        f"{found['simulator_ns'] / 1e6:.0f} ms more; {found['samples']} samples of {found['problem']}, {found['device']}"
    )


_SAID = {
    "executor": _executor, "overhead": _overhead, "profile": _profile, "calibration": _calibration, "fidelity": _fidelity,
    "training": _training, "tensorflow": _executor,
}  # fmt: skip
