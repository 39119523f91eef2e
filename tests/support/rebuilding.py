"""Which graphs tests rebuild: small ones, and of each builder the smallest large one of most lineages; all with --thorough."""

from __future__ import annotations

from collections.abc import Iterable

from support.slow import thorough

from gnnplace.corpus import manifest

LARGE = 1500  # ops; about 3 s of tracing with checked types
LONGEST = {"r-gcn", "mamba2-130m", "amoebanet-a-mobile"}  # the smallest large ones of their lineages, but half a minute of tracing or more


def rebuilt(names: Iterable[str]) -> list:
    """The names of a builder's graphs as parameters of a test; those that only --thorough rebuilds are marked."""
    entries = sorted((manifest.entry(name) for name in names), key=lambda entry: (entry.ops, entry.name))
    first = {entry.lineage: entry.name for entry in reversed(entries) if entry.ops > LARGE}
    chosen = {entry.name for entry in entries if entry.ops <= LARGE} | set(first.values()) - LONGEST
    return [entry.name if entry.name in chosen else thorough(entry.name) for entry in entries]
