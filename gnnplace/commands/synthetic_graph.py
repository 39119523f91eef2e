"""`gnnplace graphs synthetic FAMILY`: a synthetic graph as JSON, with costs of the corpus's ops."""

from __future__ import annotations

import argparse
import json

from gnnplace.commands.usage import DONE
from gnnplace.corpus import manifest
from gnnplace.corpus.synthetic import synthetic
from gnnplace.formats import atomic
from gnnplace.formats.graphs import graph_document
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources


def main(chosen: argparse.Namespace) -> int:
    """Writes a synthetic graph, the same for the same arguments."""
    donors = chosen.donors or [entry.name for entry in manifest.entries() if entry.split == "train"]
    graph = synthetic(
        chosen.family, num_ops=chosen.ops, seed=chosen.seed, donors=[sources.graph(name) for name in donors],
        width=chosen.width, density=chosen.density, blocks=chosen.blocks,
    )  # fmt: skip
    atomic.write_text(chosen.output, json.dumps(graph_document(graph)) + "\n")
    terminal.say(f"{graph.name}: {graph.num_ops} ops, {graph.num_edges} edges, sha256 {graph.sha256}")
    return DONE
