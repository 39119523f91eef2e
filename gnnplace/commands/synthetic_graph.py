"""`gnnplace graphs synthetic FAMILY`: a synthetic graph as JSON, with costs of the corpus's ops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands import inputs
from gnnplace.commands.usage import DONE, Parser
from gnnplace.corpus import manifest
from gnnplace.corpus.synthetic import FAMILIES, synthetic
from gnnplace.formats import atomic
from gnnplace.formats.graphs import graph_document
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources


def main(arguments: Sequence[str]) -> int:
    """Writes a synthetic graph, the same for the same arguments."""
    parser = Parser("graphs synthetic", "A synthetic graph as JSON: a drawn shape whose ops cost what ops of real graphs cost.")
    parser.add_argument("family", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--ops", type=inputs.count, required=True, metavar="N", help="how many ops")
    parser.add_argument("--seed", type=inputs.count, default=0, help="another seed, another graph")
    parser.add_argument("--width", type=int, help="ops side by side, or chains of a fork; the family's own where absent")
    parser.add_argument("--density", type=float, help="edges an op in the mean")
    parser.add_argument("--blocks", type=int, help="how often a pattern is repeated")
    parser.add_argument("--donors", nargs="+", metavar="GRAPH", help="whose ops lend their costs; the training split where absent")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the JSON file")
    chosen = parser.parse_args(arguments)
    donors = chosen.donors or [entry.name for entry in manifest.entries() if entry.split == "train"]
    graph = synthetic(
        chosen.family, num_ops=chosen.ops, seed=chosen.seed, donors=[sources.graph(name) for name in donors],
        width=chosen.width, density=chosen.density, blocks=chosen.blocks,
    )  # fmt: skip
    atomic.write_text(chosen.output, json.dumps(graph_document(graph)) + "\n")
    terminal.say(f"{graph.name}: {graph.num_ops} ops, {graph.num_edges} edges, sha256 {graph.sha256}")
    return DONE
