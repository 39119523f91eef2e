"""Which graphs of the corpus tests rebuild: small ones, and of each builder the smallest large one of a lineage; all with --every-graph."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gnnplace.corpus import manifest

LARGE = 1500  # ops; about 3 s of tracing with checked types


def rebuilt(names: Iterable[str]) -> list:
    """The names of a builder's graphs as parameters of a test; those that only --every-graph rebuilds are marked."""
    entries = sorted((manifest.entry(name) for name in names), key=lambda entry: (entry.ops, entry.name))
    first = {entry.lineage: entry.name for entry in reversed(entries) if entry.ops > LARGE}
    chosen = {entry.name for entry in entries if entry.ops <= LARGE} | set(first.values())
    return [pytest.param(entry.name, marks=[] if entry.name in chosen else pytest.mark.every_graph) for entry in entries]
