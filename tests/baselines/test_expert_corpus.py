"""The expert on graphs of the corpus does what a person would: see what stands where, layer by layer."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from jaxtyping import Int32

from gnnplace.baselines.expert import expert
from gnnplace.corpus import clusters, manifest
from gnnplace.costs.roofline import problem
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.simulator.simulator import simulate

IMAGE_NETWORKS = (
    "inception-v3-b1", "resnet-50", "densenet-121", "mobilenet-v2", "vgg-16", "efficientnet-b0", "convnext-tiny", "nasnet-mobile",
    "amoebanet-a-mobile", "unet", "unet-inference", "vq-vae",
)  # fmt: skip
SPREAD = (
    "bert-base", "gpt2", "t5-base", "vit-b16", "clip-b32", "llama-1b", "moe-8e", "transformer-xl-4", "mlp-mixer-b16", "rnnlm-4", "nmt-4",
    "gnmt-2", "gru-lm", "deepspeech2", "two-tower", "dlrm", "deepfm", "gat", "wavenet-2x18", "gpt2-inference", "dlrm-inference",
)  # fmt: skip
ENDS = {
    "bert-base": ("bert.embeddings.word_embeddings", "cls.predictions.decoder"), "vit-b16": ("patches.projection", "head"),
    "gpt2": ("wte", "lm_head"), "gpt2-inference": ("wte", "lm_head"), "mlp-mixer-b16": ("patches", "out"),
    "rnnlm-4": ("embedding", "softmax"),
    **dict.fromkeys(("llama-1b", "t5-base", "moe-8e", "gru-lm", "transformer-xl-4"), ("embedding", "head")),
}  # fmt: skip


@cache
def placed(name: str) -> tuple[ComputationGraph, Int32[np.ndarray, " ops"]]:
    """A graph of the corpus and the device of each op on four K40s."""
    graph = manifest.graph(name)
    return graph, expert(problem(graph, clusters.cluster("k40-4")), simulate).device


def forward_devices(name: str, layer: str) -> set[int]:
    graph, device = placed(name)
    return set(device[graph.layer.among([layer]) & graph.phase.among(["forward"]) & graph.kernel].tolist())


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_networks_that_convolve_images_stay_on_one_gpu(name: str) -> None:
    graph, device = placed(name)
    assert len(set(device[graph.kernel].tolist())) == 1


@pytest.mark.parametrize("name", SPREAD)
def test_gradients_and_updates_stand_with_the_forward_ops_of_their_layer(name: str) -> None:
    """Each layer on one device, that of its forward ops. What updates a tied weight stands with the weight, in the layer that holds it."""
    graph, device = placed(name)
    assert len(set(device[graph.kernel].tolist())) > 1
    forward = graph.phase.among(["forward"]) & graph.kernel & (graph.layer.index != NONE)
    home = np.full(len(graph.layer.values) + 1, NONE)
    home[graph.layer.index[forward]] = device[forward]
    later = graph.phase.among(["backward_data", "backward_weight", "update"]) & (home[graph.layer.index] != NONE)
    np.testing.assert_array_equal(device[forward], home[graph.layer.index[forward]])
    np.testing.assert_array_equal(device[later], home[graph.layer.index[later]])


@pytest.mark.parametrize("name", SPREAD)
def test_a_variable_stands_with_its_update(name: str) -> None:
    graph, device = placed(name)
    for group in range(len(graph.colocation.values)):
        assert len(set(device[graph.colocation.index == group].tolist())) == 1


@pytest.mark.parametrize("name", ENDS)
def test_the_embedding_stands_with_the_first_layer_and_the_head_with_the_last(name: str) -> None:
    graph, device = placed(name)
    first, last = (set(device[(graph.block == block) & graph.kernel].tolist()) for block in (0, graph.block.max()))
    embedding, head = ENDS[name]
    assert forward_devices(name, embedding) == first != last == forward_devices(name, head)


@pytest.mark.parametrize("name", ["rnnlm-4", "nmt-4"])
def test_a_layer_on_each_gpu_of_a_recurrent_network(name: str) -> None:
    graph, device = placed(name)
    assert [set(device[graph.block == block].tolist()) for block in range(4)] == [{1}, {2}, {3}, {4}]


@pytest.mark.parametrize("name", ["bert-base", "gpt2", "t5-base", "vit-b16", "llama-1b", "moe-8e", "wavenet-2x18"])
def test_blocks_are_contiguous_on_all_gpus(name: str) -> None:
    graph, device = placed(name)
    order = [device[graph.kernel & (graph.block == block)] for block in range(graph.block.max() + 1)]
    runs = np.array([row[0] for row in order])
    assert (np.diff(runs) >= 0).all() and set(runs.tolist()) == {1, 2, 3, 4}


def test_what_stands_around_the_decoders_blocks_stays_with_the_decoder() -> None:
    """Its relative positions are known at once, so they lie as early as the encoder's first block."""
    graph, device = placed("t5-base")
    first = set(device[graph.kernel & (graph.block == 12)].tolist())
    assert forward_devices("t5-base", "decoder.bias") == forward_devices("t5-base", "decoder.dropout_before") == first
    assert forward_devices("t5-base", "encoder.bias") == forward_devices("t5-base", "embedding") != first


def test_towers_share_one_gpu_at_most_and_end_in_the_loss() -> None:
    graph, device = placed("clip-b32")
    image, text = (
        {int(device[op]) for op in np.flatnonzero(graph.kernel) if (graph.layer[int(op)] or "").startswith(f"{tower}.layers")}
        for tower in ("image", "text")
    )
    assert image | text == {1, 2, 3, 4} and len(image & text) <= 1
    ends = forward_devices("clip-b32", "image.norm_after") | forward_devices("clip-b32", "text.norm")
    assert forward_devices("clip-b32", "module") <= ends
