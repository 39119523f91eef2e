"""The tables of one policy for many graphs: ratios of step times to what they are compared with, by lineage, by switch of the encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments import results
from experiments.cells import Cell
from experiments.encoders.intervals import Logs, Times, compared, geometric
from experiments.encoders.transfer import FEATURES, NEIGHBOURS, UNSEEN, VARIANTS
from gnnplace.corpus import manifest

WAYS, STAGES = ("greedy", "best sample"), ("trained", "untrained")
PAPER, GNN = "paper, indices", "costs, messages"
BASES = {"best heuristic": "heuristic_ns", "one device": "one_device_ns", "bound": "bound_ns"}
ALONE, ROOM = 1.01, 1.05  # so near to the best single device is on it; so much faster than it is a heuristic that shows room
Rows = dict[str, dict[str, list[int | None]]]


def table(found: dict[str, Cell]) -> str:
    """Every planner against what it is compared with; then by lineage and cluster; then the policies in pairs."""
    others = {name.removeprefix("others/"): cell for name, cell in found.items() if name.startswith("others/")}
    rows = _rows(found, others)
    families = {name: _entry(name).family for name in others}
    return "\n".join((overall(rows, others, families), _parts(rows, others, families), _pairs(rows, families)))


def _rows(found: dict[str, Cell], others: Mapping[str, Cell]) -> Rows:
    """Step times of each planner by problem, one for each seed."""
    rows: Rows = {}
    for variant in VARIANTS:
        cells = [cell for name, cell in sorted(found.items()) if name.startswith(f"{variant}/")]
        if cells:
            rows |= {
                _row(variant, stage, way): {name: [cell[stage][name][way] for cell in cells] for name in others}
                for stage in STAGES
                for way in WAYS
            }
    rows["random"] = {name: cell["random_ns"] for name, cell in others.items()}
    return rows | {label: {name: [cell[key]] for name, cell in others.items()} for label, key in BASES.items() if key != "bound_ns"}


def _row(variant: str, stage: str, way: str) -> str:
    return f"{variant}: {stage}, {way}"


def overall(rows: Rows, others: Mapping[str, Cell], families: Mapping[str, str]) -> str:
    """Every planner over the best heuristic, the best single device and the bound, and how often it stays on one device."""
    bases = {label: {name: [cell[key]] for name, cell in others.items()} for label, key in BASES.items()}
    lines = []
    for label, times in rows.items():
        found = [time for each in times.values() for time in each]
        ratios = [_shown(compared(times, base), families) for base in bases.values()]
        every, room = on_one_device(times, others, 0.0), on_one_device(times, others, ROOM)
        lines.append([label, *ratios, every, room, f"{sum(time is None for time in found)} of {len(found)}"])
    columns = ["on one device", f"where a heuristic is over {ROOM - 1:.0%} faster", "infeasible"]
    return results.markdown_table(["planner", *(f"/ {label}" for label in bases), *columns], lines)


def on_one_device(times: Times, others: Mapping[str, Cell], room: float) -> str:
    """How many placements take what the best single device takes, on problems where a heuristic is so much faster than that."""
    near = [
        time is not None and 1 / ALONE <= time / others[name]["one_device_ns"] <= ALONE
        for name, each in times.items()
        for time in each
        if others[name]["one_device_ns"] > room * others[name]["heuristic_ns"]
    ]
    return f"{sum(near)} of {len(near)}"


def _parts(rows: Rows, others: Mapping[str, Cell], families: Mapping[str, str]) -> str:
    """Over the best heuristic: each split, each lineage, clusters that were seen and the one that was not."""
    heuristic, parts = {name: [cell["heuristic_ns"]] for name, cell in others.items()}, dict[str, list[str]]()
    for of in (_split, _lineage, _cluster):
        for name in others:
            parts.setdefault(of(name), []).append(name)
    lines = []
    for label, times in rows.items():
        logs = compared(times, heuristic)
        lines.append([label, *(_shown({name: logs[name] for name in part}, families) for part in parts.values())])
    return results.markdown_table(["planner / best heuristic", *parts], lines)


def _pairs(rows: Rows, families: Mapping[str, str]) -> str:
    """What a switch brings, problem by problem and seed by seed: below 1 the first is faster. Empty until all four policies are there."""
    if any(_row(variant, "trained", WAYS[0]) not in rows for variant in VARIANTS):
        return ""
    lines = [[f"{label}, {way}", _shown(logs, families)] for way in WAYS for label, logs in _compared_pairs(rows, way).items()]
    return results.markdown_table(["pair", "ratio"], lines)


def _compared_pairs(rows: Rows, way: str) -> dict[str, Logs]:
    trained = {variant: rows[_row(variant, "trained", way)] for variant in VARIANTS}
    pairs = {
        "encoder gnn / encoder paper": [(trained[GNN], trained[PAPER])],
        "features: costs / paper": [(trained[f"costs, {each}"], trained[f"paper, {each}"]) for each in NEIGHBOURS],
        "neighbours: messages / indices": [(trained[f"{each}, messages"], trained[f"{each}, indices"]) for each in FEATURES],
        "encoder gnn: trained / untrained": [(trained[GNN], rows[_row(GNN, "untrained", way)])],
        "encoder gnn / random": [(trained[GNN], rows["random"])],
    }
    return {label: _joined(each) for label, each in pairs.items()}


def _joined(pairs: Sequence[tuple[Times, Times]]) -> dict[str, list[float]]:
    every = [compared(*pair) for pair in pairs]
    return {name: [value for logs in every for value in logs[name]] for name in every[0]}


def _shown(logs: Logs, families: Mapping[str, str]) -> str:
    found = geometric(logs, families)
    return "-" if found is None else str(found)


def _entry(name: str) -> manifest.Entry:
    return manifest.entry(name.rpartition(".")[0])


def _split(name: str) -> str:
    return _entry(name).split


def _lineage(name: str) -> str:
    return _entry(name).lineage


def _cluster(name: str) -> str:
    return "cluster not seen" if name.endswith(f".{UNSEEN}") else "clusters seen"
