"""What does the GNN encoder bring to the hierarchical policy? One policy a graph, and one policy for many graphs. README.md explains.

    python -m experiments.encoders.run --part single [--seeds N] [--updates N]
    python -m experiments.encoders.run --part transfer [--seeds N] [--updates N]
    python -m experiments.encoders.run --part controls
    python -m experiments.encoders.run --part clustered --seeds 3     # after the controls

Resumable: finished cells are kept, by the commit that made each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from experiments import cells, output, results
from experiments.cells import Cell
from experiments.encoders import clustered, controls, plot, single, single_table, transfer, transfer_table
from gnnplace.config import files

HERE = Path(__file__).resolve().parent
PARTS = {"single": single_table.table, "transfer": transfer_table.table, "controls": controls.table}
PICTURED = ("single", "transfer")


def overrides(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Updates other than the settings' own."""
    given = {"updates": arguments.updates, "grouping.updates": arguments.pretraining}
    return tuple(f"--training.{knob}={value}" for knob, value in given.items() if value is not None)


def computed(arguments: argparse.Namespace, path: Path) -> dict[str, Cell]:
    """Every cell of a part. The settings that it keeps are whole configurations, so that cells of two settings never mix."""
    words = overrides(arguments)
    if arguments.part == "single":
        settings: dict[str, Any] = {encoder: files.to_document(single.config(encoder, words)) for encoder in single.ENCODERS}
        return cells.compute(path, single.jobs(arguments.seeds, words), settings)
    if arguments.part == "controls":
        return cells.compute(path, controls.jobs(arguments.samples), {"evaluations": arguments.samples})
    plan = transfer.Plan(words, arguments.samples)
    if arguments.part == "clustered":
        fixed = {
            name: files.to_document(transfer.config(transfer_table.GNN, (*words, *clustered.FIXED, *switches)))
            for name, switches in clustered.VARIANTS.items()
        }
        return cells.compute(path, clustered.jobs(arguments.seeds, plan), fixed | {"samples": arguments.samples})
    settings = {variant: files.to_document(transfer.config(variant, words)) for variant in transfer.VARIANTS}
    return cells.compute(path, transfer.jobs(arguments.seeds, plan), settings | {"samples": arguments.samples})


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--part", choices=[*PARTS, "clustered"], required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, help="updates of reinforcement; the part's own unless given")
    parser.add_argument("--pretraining", type=int, help="updates that imitate clusterings; the part's own unless given")
    parser.add_argument("--samples", type=int, default=64, help="samples of each problem after training (transfer)")
    parser.add_argument("--show", action="store_true", help="compute nothing: the table and pictures of the cells that are there")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of cells, table and pictures")
    arguments = parser.parse_args()
    path = arguments.results / f"{arguments.part}.json"
    found = results.load(path)["cells"] if arguments.show else computed(arguments, path)
    if arguments.part in PICTURED:
        plot.draw(arguments.part, found, arguments.results)
    if arguments.part == "clustered":
        text = clustered.table(found, results.load(arguments.results / "controls.json")["cells"])
    else:
        text = PARTS[arguments.part](found)
    output.show(text, {"table": text}, arguments, path.with_suffix(".md"))


if __name__ == "__main__":
    main()
