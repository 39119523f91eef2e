"""What tests of several PyTorch workloads of the corpus compare: parameters, and the products that torch itself counts."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from datasets.build_torch import workload
from gnnplace.corpus import manifest
from gnnplace.frontends.torch_step import TorchStep
from gnnplace.graph import ComputationGraph

PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight")


def flops_of(graph: ComputationGraph, *kinds: str) -> int:
    """The arithmetic of all ops of these canonical kinds."""
    return int(graph.flops[graph.canonical_kind.among(kinds)].sum())


def parameter_bytes(name: str) -> int:
    """Of parameters and optimiser, without the counters of Adam's steps."""
    graph = manifest.graph(name)
    held = graph.kind.among(["parameter"])
    counters = 4 * np.count_nonzero(held) if "; Adam" in manifest.entry(name).source else 0
    return int(graph.persistent_bytes[held].sum()) - counters


def counted_products(name: str, *, without: str = "nothing") -> int:
    """What torch counts for a step, or for the forward pass of an inference, but for ops that are called so."""
    with torch.device("meta"):
        built = workload(name)
        with FlopCounterMode(display=False) as counter:
            if isinstance(built, TorchStep):
                built.loss(built.module, *built.inputs).backward()
            else:
                with torch.no_grad():
                    built.module.eval()(*built.inputs)
    return sum(flops for op, flops in counter.get_flop_counts()["Global"].items() if without not in str(op))
