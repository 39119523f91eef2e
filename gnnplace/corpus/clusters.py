"""Cluster presets: `datasets/clusters/<name>.json`, in the interchange format of clusters."""

from __future__ import annotations

from gnnplace.cluster import Cluster
from gnnplace.corpus.manifest import folder
from gnnplace.formats import clusters, strict_json


def names() -> tuple[str, ...]:
    """The names of the presets, sorted."""
    return tuple(sorted(path.stem for path in (folder() / "clusters").glob("*.json")))


def cluster(name: str) -> Cluster:
    """The preset called `name`. Raises ValueError with the presets that there are."""
    if name not in names():
        raise ValueError(strict_json.unknown(f"cluster preset in {folder()}", name, names()))
    return clusters.read_cluster(folder() / "clusters" / f"{name}.json")
