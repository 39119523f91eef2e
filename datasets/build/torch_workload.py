"""A PyTorch workload of the corpus, as lists of workloads describe it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gnnplace.frontends.torch.step import TorchInference, TorchStep


@dataclass(frozen=True)
class Workload:
    """What builds a training step or an inference, on whatever device torch has as its default, and what the manifest says of it."""

    build: Callable[[], TorchStep | TorchInference]
    family: str
    lineage: str
    source: str
    mode: Literal["training", "inference"] = "training"

    def inference(self, build: Callable[[], TorchInference], source: str) -> Workload:
        """The inference of the network that this training step trains: of the same family and lineage, so that no split parts the two."""
        return Workload(build, self.family, self.lineage, source, "inference")


def without_labels(step: TorchStep) -> TorchInference:
    """The inference of a network that takes all inputs of this training step but the last one, the labels."""
    return TorchInference(step.module, step.inputs[:-1])
