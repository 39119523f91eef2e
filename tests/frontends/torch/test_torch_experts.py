"""Mixtures of experts of transformers, by grouped products: the products that PyTorch's counter counts in the same network by batches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import gnnplace as gp

transformers = pytest.importorskip("transformers")

PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight", "attention")
pytestmark = pytest.mark.slow
IDS = torch.arange(2 * 24).reshape(2, 24) % 40


def mixtral(way: str) -> nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.MixtralConfig(**sizes, vocab_size=40, num_local_experts=4, num_experts_per_tok=2)
    return transformers.MixtralForCausalLM._from_config(config, attn_implementation="eager", experts_implementation=way)


def loss(net: nn.Module, ids: Tensor) -> Tensor:
    return net(input_ids=ids, use_cache=False).logits.square().mean()


def test_experts_in_inference_and_training_have_the_flops_that_pytorch_counts() -> None:
    steps = (gp.TorchInference(mixtral("grouped_mm"), {"input_ids": IDS}), gp.TorchStep(mixtral("grouped_mm"), loss, (IDS,), "adamw"))
    graphs = [gp.problem(step, cluster="k40-2").graph for step in steps]
    net = mixtral("batched_mm")  # the counter knows no grouped product
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        net(input_ids=IDS)
    with FlopCounterMode(display=False) as both:
        loss(net, IDS).backward()
    for graph, counter in zip(graphs, (forward, both), strict=True):
        assert not graph.uncounted and any("grouped_mm" in kind for kind in graph.kind.values)
        assert graph.flops[graph.canonical_kind.among(PRODUCTS)].sum() == counter.get_total_flops()
