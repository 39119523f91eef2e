"""Rebuilds the graphs of Keras models in the corpus: `python -m datasets.build_keras [NAME ...]`, all of them without a name.

The same versions of Keras and TensorFlow give the same graph, checksum included.
"""

from __future__ import annotations

import sys

from datasets.build import keras_applications
from datasets.build.keras_applications import WORKLOADS
from datasets.build.versions import versions
from gnnplace.corpus import manifest, splits
from gnnplace.frontends.tensorflow.keras import KerasModel
from gnnplace.graph import ComputationGraph


def workload(name: str) -> KerasModel:
    """The model called `name` with its shapes. Raises ValueError with the names that there are."""
    if name not in WORKLOADS:
        raise ValueError(f"workload: {name!r} is none of {', '.join(WORKLOADS)}")
    return keras_applications.described(WORKLOADS[name])


def graph(name: str) -> ComputationGraph:
    """The graph called `name`. Raises ValueError with the names that there are."""
    return workload(name).computation_graph(name)


def main(names: list[str]) -> None:
    """Builds and registers the workloads of these names."""
    for name in names or list(WORKLOADS):
        built, described = graph(name), WORKLOADS[name]
        entry = manifest.add(
            built, family=described.family, lineage=described.lineage, split=splits.fixed(described.lineage), mode=described.mode,
            source=described.source, licence="Apache-2.0", builder=f"python -m datasets.build_keras {name}",
            builder_version=versions("keras", "tensorflow-cpu", source=described.source),
        )  # fmt: skip
        print(f"{name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}")


if __name__ == "__main__":
    main(sys.argv[1:])
