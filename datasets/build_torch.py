"""Rebuilds the PyTorch graphs of the corpus: `python -m datasets.build_torch [NAME ...]`, all of them without a name.

The same versions of torch and transformers give the same graph, checksum included. Modules are built on the `meta` device, so that a
workload of billions of parameters takes no memory.
"""

from __future__ import annotations

import sys

import torch

from datasets.build import (
    torch_dense_prediction,
    torch_diffusion,
    torch_graph_networks,
    torch_inference_models,
    torch_language,
    torch_models,
    torch_others,
    torch_recommenders,
    torch_resnets,
    torch_speech,
    torch_transformers,
    torch_vision,
)
from datasets.build.torch_workload import Workload
from datasets.build.versions import versions
from gnnplace.corpus import manifest, splits
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.frontends.torch.step import TorchInference, TorchStep

WORKLOADS: dict[str, Workload] = {
    **torch_models.WORKLOADS,
    **torch_vision.WORKLOADS,
    **torch_resnets.WORKLOADS,
    **torch_others.WORKLOADS,
    **torch_transformers.WORKLOADS,
    **torch_dense_prediction.WORKLOADS,
    **torch_speech.WORKLOADS,
    **torch_diffusion.WORKLOADS,
    **torch_language.WORKLOADS,
    **torch_recommenders.WORKLOADS,
    **torch_graph_networks.WORKLOADS,
    **torch_inference_models.WORKLOADS,
}


def traced(name: str) -> TracedStep:
    """The training step or inference of the workload of that name as a graph, without memory. Raises ValueError for an unknown one."""
    with torch.device("meta"):
        step = workload(name)
    return step.traced(name)


def workload(name: str) -> TorchStep | TorchInference:
    """The workload of that name, with values, drawn from torch's generator. Raises ValueError for an unknown one."""
    if name not in WORKLOADS:
        raise ValueError(f"workload: {name!r} is none of {', '.join(WORKLOADS)}")
    return WORKLOADS[name].build()


def main(names: list[str]) -> None:
    """Builds and registers the workloads of these names."""
    for name in names or list(WORKLOADS):
        step = traced(name)
        described = WORKLOADS[name]
        entry = manifest.add(
            step.graph, family=described.family, lineage=described.lineage, split=splits.fixed(described.lineage), mode=described.mode,
            source=described.source, licence="Apache-2.0", builder=f"python -m datasets.build_torch {name}",
            builder_version=versions("torch", source=described.source),
        )  # fmt: skip
        uncounted = f"; costed by bytes alone: {dict(step.graph.uncounted)}" if step.graph.uncounted else ""
        print(f"{name}: {entry.ops} ops, {entry.edges} edges, sha256 {entry.sha256}{uncounted}")


if __name__ == "__main__":
    main(sys.argv[1:])
