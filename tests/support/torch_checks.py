"""What tests of several PyTorch workloads of the corpus compare: parameters, and the products that torch itself counts."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from datasets.build_torch import workload
from gnnplace.corpus import manifest
from gnnplace.frontends.torch.step import TorchStep
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


def module_parameters(name: str) -> int:
    """How many numbers the module of the workload learns."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in workload(name).module.parameters())


def counted_products(name: str, *, backwards: bool = True, without: str = "nothing") -> int:
    """What torch counts for a step, or for its forward pass or that of an inference, but for ops that are called so."""
    with torch.device("meta"):
        built = workload(name)
        with FlopCounterMode(display=False) as counter:
            if isinstance(built, TorchStep):
                loss = built.loss(built.module, *built.inputs)
                if backwards:
                    loss.backward()
            else:
                with torch.no_grad():
                    built.module.eval()(*built.inputs)
    return sum(flops for op, flops in counter.get_flop_counts()["Global"].items() if without not in str(op))


def check_products_of_images(name: str) -> None:
    """The graph has torch's count of products forwards, and twice that backwards but for the images, which need no gradient.

    Torch's own count of a grouped convolution's backward is too large by the number of its groups.
    """
    graph, forwards = manifest.graph(name), counted_products(name, backwards=False)
    with torch.device("meta"):
        step = workload(name)
        first = next(module for module in step.module.modules() if isinstance(module, nn.Conv2d))
        with FlopCounterMode(display=False) as stem:
            first(step.inputs[0])
    products, forward = graph.canonical_kind.among(PRODUCTS), graph.phase.among(["forward"])
    assert graph.flops[products & forward].sum() == forwards
    assert graph.flops[products & ~forward].sum() == 2 * forwards - stem.get_total_flops()
