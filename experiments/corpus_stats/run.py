"""What the corpus holds: sizes, widths, kinds of work and room, by graph and by family.

Width is work / critical path: what any placement gains over one device at most, however many devices there are. Work is that of a K40's
roofline (`k40-2`); room is what `experiments/room` measured on every preset of clusters.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from experiments import output, results
from experiments.cells import Cell
from experiments.corpus_stats import plot
from experiments.problems import problem_of
from experiments.room import run as room
from gnnplace.corpus import manifest
from gnnplace.corpus.manifest import Entry
from gnnplace.report.graph_summary import fastest_ns, shares, summary

PATH = Path(__file__).resolve().parent / "results" / "corpus_stats.json"
CLUSTER = "k40-2"
PARTS: Mapping[str, tuple[str, ...]] = {  # of the work, by canonical kind
    "products": ("matmul", "batch_matmul", "attention"),
    "convolutions": ("conv", "conv_grad_input", "conv_grad_weight"),
    "normalisation": ("normalization", "normalization_grad", "softmax", "loss"),
    "elementwise": ("elementwise", "activation", "activation_grad", "reduce", "pool", "pool_grad", "random", "other"),
    "updates": ("update",),
    "movement": ("embedding", "embedding_grad", "concat", "split", "slice", "transpose", "reshape", "gather", "scatter", "cast", "fill",
                 "variable", "input", "shape", "control"),
}  # fmt: skip
HEADER = ["graph", "family", "lineage", "split", "mode", "ops", "GFLOP", "memory, MiB", "levels", "width", "with room", "room, median"]
FAMILIES = ["family", "lineage", "graphs", "ops", "width", "with room", "room, median", *PARTS]


def figures(entry: Entry) -> Cell:
    """What one graph holds; `parts` are shares of the work."""
    problem = problem_of(entry.name, CLUSTER)
    found = summary(problem)
    work = {share["value"]: share["work_ns"] for share in shares(problem.graph, problem.graph.canonical_kind, fastest_ns(problem))}
    columns = ("ops", "edges", "flops", "persistent_bytes", "work_ns", "critical_path_ns", "parallelism")
    return {
        **{name: getattr(entry, name) for name in ("family", "lineage", "split", "mode")},
        **{name: found[name] for name in columns},
        "levels": int(problem.graph.level.max()) + 1,
        "parts": {name: sum(work.get(kind, 0) for kind in kinds) / found["work_ns"] for name, kinds in PARTS.items()},
    }


def rooms(cells: Mapping[str, Cell], graphs: Iterable[str]) -> list[Cell]:
    """The cells of `experiments/room` that are of these graphs."""
    wanted = set(graphs)
    return [cell for name, cell in cells.items() if name.split("/")[0] in wanted]


def graph_line(name: str, found: Cell, measured: list[Cell]) -> list[str]:
    """A graph's line of the table."""
    return [
        name, found["family"], found["lineage"], found["split"], found["mode"], f"{found['ops']:,}", f"{found['flops'] / 1e9:,.0f}",
        f"{found['persistent_bytes'] / 2**20:,.0f}", f"{found['levels']:,}", f"{found['parallelism']:.2f}", *_room(measured),
    ]  # fmt: skip


def family_line(family: str, members: list[Cell], measured: list[Cell]) -> list[str]:
    """A family's line of the table: ranges, and shares in the mean of its graphs."""
    ops, widths = [member["ops"] for member in members], [member["parallelism"] for member in members]
    parts = [f"{100 * statistics.mean(member['parts'][name] for member in members):.0f} %" for name in PARTS]
    return [
        family, members[0]["lineage"], str(len(members)), _range(ops, ",.0f"), _range(widths, ".2f"), *_room(measured), *parts,
    ]  # fmt: skip


def _room(measured: list[Cell]) -> list[str]:
    """On how many presets there is room, and the median of what is room."""
    found = [value for cell in measured if (value := room.room(cell)) is not None]
    if not found:
        return ["-", "-"]
    return [f"{sum(room.has_room(cell) for cell in measured)} of {len(measured)}", f"{100 * np.median(found):.0f} %"]


def _range(values: list[float], form: str) -> str:
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} - {most}"


def main() -> None:
    chosen = output.parser(__doc__).parse_args()
    cells = room.known()
    found = {entry.name: figures(entry) for entry in manifest.entries()}
    families: dict[str, list[str]] = {}
    for name in sorted(found, key=lambda name: (found[name]["lineage"], found[name]["family"], name)):
        families.setdefault(found[name]["family"], []).append(name)
    lines = [family_line(family, [found[name] for name in names], rooms(cells, names)) for family, names in families.items()]
    graphs = [graph_line(name, found[name], rooms(cells, [name])) for names in families.values() for name in names]
    table = results.markdown_table(FAMILIES, lines) + "\n" + results.markdown_table(HEADER, graphs)
    results.save(PATH, {"provenance": results.provenance(PATH.parents[1]), "cluster": CLUSTER, "graphs": found})
    shown = {
        family: [value for cell in rooms(cells, names) if (value := room.room(cell)) is not None] for family, names in families.items()
    }
    plot.draw(found, families, shown, tuple(PARTS), PATH.with_suffix(".png"))
    output.show(table, found, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
