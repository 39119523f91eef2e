"""Generated graphs, made when they are asked for: `python -m datasets.build_generated NAME -o FILE.json`, or `generated(NAME)`.

They are not in the manifest and have no files. The same version of torch gives the same graph, checksum included.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from datasets.build import enas
from gnnplace.formats import atomic
from gnnplace.formats.graphs import graph_document
from gnnplace.graph import ComputationGraph


def generated(name: str) -> ComputationGraph:
    """The graph of that name (`enas.NAMES`), traced now, which takes seconds and no memory. Raises ValueError for an unknown one."""
    with torch.device("meta"):
        step = enas.step(name)
    return step.traced(name).graph


def main() -> None:
    """Writes the graph of a name as JSON."""
    parser = argparse.ArgumentParser(prog="python -m datasets.build_generated", description=main.__doc__)
    parser.add_argument("name", metavar="NAME", help=f"{enas.NAMES[0]} ... {enas.NAMES[-1]}")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the JSON file")
    chosen = parser.parse_args()
    graph = generated(chosen.name)
    atomic.write_text(chosen.output, json.dumps(graph_document(graph)) + "\n")
    print(f"{graph.name}: {graph.num_ops} ops, {graph.num_edges} edges, sha256 {graph.sha256}")


if __name__ == "__main__":
    main()
