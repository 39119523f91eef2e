"""The table of zero-shot policies: over the best heuristic, by set of problems, beside controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments import results
from experiments.cells import Cell
from experiments.encoders.intervals import Times, compared, geometric
from experiments.encoders.transfer_table import on_one_device

ROOM, FASTER = 1.05, 1.05
SINGLE = {
    "the base that is observed": "base_ns", "the published rules, in every form": "rules_ns", "the best single device": "one_device_ns",
    "the bound": "bound_ns",
}  # fmt: skip
WAYS = {"greedy": "greedy", "sample": "one sample", "best": "best of 64 evaluations", "moved": "and 400 of the improver"}


def table(computed: Mapping[str, Cell], kind_of: Mapping[str, str]) -> str:
    """A table for each set of problems with room, then how often a greedy placement stays on one device."""
    others = {name.removeprefix("opponents/"): cell for name, cell in computed.items() if name.startswith("opponents/")}
    roomy = {label: cell for label, cell in others.items() if cell["heuristic_ns"] >= ROOM * cell["bound_ns"]}
    parts = []
    for kind in dict.fromkeys(kind_of.values()):
        of_kind = {label: cell for label, cell in roomy.items() if kind_of.get(label) == kind}
        if of_kind:
            parts.append(_set(kind, of_kind, computed))
    return "\n".join(parts)


def _set(kind: str, others: Mapping[str, Cell], computed: Mapping[str, Cell]) -> str:
    """Every row over the best heuristic of one set, and the controls."""
    heuristic: Times = {label: [cell["heuristic_ns"]] for label, cell in others.items()}
    families = {label: cell["family"] for label, cell in others.items()}

    def over(times: Times) -> str:
        return str(geometric(compared(times, heuristic), families) or "-")

    lines = []
    for name in dict.fromkeys(key.split("/")[1] for key in computed if key.startswith("policy/")):
        seeds = [cell for key, cell in sorted(computed.items()) if key.startswith(f"policy/{name}/")]
        for stage in ("trained", "untrained"):
            rows = {way: {label: [cell[stage][label].get(way) for cell in seeds] for label in others} for way in WAYS}
            shown = [over(times) for times in rows.values()]
            greedy = [time for times in rows["greedy"].values() for time in times]
            lines.append(
                [
                    f"{name}, {stage}",
                    *shown,
                    on_one_device(rows["greedy"], others, FASTER),
                    f"{sum(time is None for time in greedy)} of {len(greedy)}",
                ]
            )
    controlled = {
        name: {label: cell["controls"][name] for label, cell in others.items()} for name in next(iter(others.values()))["controls"]
    }
    for name, times in controlled.items():
        lines.append([name, "", "", over(times), "", on_one_device(times, others, FASTER), _unfit(times.values())])
    for name, key in SINGLE.items():
        single: Times = {label: [cell[key]] for label, cell in others.items()}
        lines.append([name, over(single), "", "", "", on_one_device(single, others, FASTER), _unfit(single.values())])
    header = [f"{kind}: {len(others)} problems", *WAYS.values(), "on one device where a heuristic is 5 % faster", "infeasible"]
    return results.markdown_table(header, lines)


def _unfit(every: Sequence[Sequence[int | None]] | object) -> str:
    times = [time for each in every for time in each]  # type: ignore[attr-defined]
    return f"{sum(time is None for time in times)} of {len(times)}"
