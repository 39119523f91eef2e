"""Clusters by name: presets (`datasets/clusters/NAME.json`), and machines described in words (`cluster_text`).

This module stands alone so that a preset does not wait for the import of the hardware table.
"""

from __future__ import annotations

from gnnplace.cluster import Cluster
from gnnplace.corpus.manifest import folder
from gnnplace.formats import clusters, strict_json


def names() -> tuple[str, ...]:
    """The names of the presets, sorted."""
    return tuple(sorted(path.stem for path in (folder() / "clusters").glob("*.json")))


def cluster(name: str) -> Cluster:
    """The preset called `name`, or the cluster that `name` describes (`2x rtx-4090, pcie4`).

    Raises ValueError (one line) if it is neither.
    """
    if name in names():
        return clusters.read_cluster(folder() / "clusters" / f"{name}.json")
    from gnnplace.corpus.cluster_text import EXAMPLE, described_cluster, is_description

    if is_description(name):
        return described_cluster(name)
    presets = strict_json.unknown(f"cluster preset in {folder()}", name, names())
    raise ValueError(f"{presets}; a machine is written as {EXAMPLE!r}")
