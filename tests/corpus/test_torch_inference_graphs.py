"""The inference graphs of the corpus beside the training steps of the same networks, which other tests check by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.torch_checks import PRODUCTS

from datasets.build_torch import WORKLOADS
from gnnplace.corpus import manifest, splits
from gnnplace.graph import NONE, ComputationGraph

BATCHES = {
    "bert-base": (8, 32), "gpt2": (1, 4), "moe-8e": (1, 8), "dlrm": (128, 2048), "gru-lm": (16, 64), "unet": (2, 16),
    "densenet-121": (8, 32), "mobilenet-v2": (1, 64), "convnext-tiny": (8, 64), "swin-t": (8, 64), "vit-b16": (8, 32),
    "wavenet-2x18": (1, 8), "whisper-base": (1, 16), "retinanet": (1, 2), "deeplab-v3": (1, 16),
    "stable-diffusion": (2, 4), "llama-7b": (1, 1), "t5-base": (1, 8), "deepspeech2": (1, 32), "deepfm": (128, 4096), "gat": (1, 1),
    "graphsage": (64, 512), "clip-b32": (32, 128), "two-tower": (16, 4096),
}  # fmt: skip
"""Of inference and of training."""
IN_PART = {"clip-b32", "two-tower"}
"""What they compute follows the batch only in part, and is counted by hand."""
UNTRAINED = {"mixtral-8x7b-inference", "llama-1b-decode", "resnet-50-inference", "inception-v3-inference"}
"""The corpus has no training step of the same sizes that runs the same ops."""


def inference(training: str) -> ComputationGraph:
    return manifest.graph(f"{training}-inference")


def products(graph: ComputationGraph) -> int:
    found = graph.canonical_kind.among([*PRODUCTS, "attention"]) & graph.phase.among(["forward"])
    return int(graph.flops[found].sum())


def parameters(graph: ComputationGraph) -> dict[str, int]:
    held = np.flatnonzero(graph.kind.among(["parameter"])).tolist()
    return {graph.op_names[op]: int(graph.persistent_bytes[op]) for op in held}


def test_every_inference_is_beside_its_training_or_known_to_have_none() -> None:
    found = {name for name, workload in WORKLOADS.items() if workload.mode == "inference"}
    assert found == {f"{training}-inference" for training in BATCHES} | UNTRAINED


@pytest.mark.parametrize("training", BATCHES)
def test_it_is_told_from_training_and_never_parted_from_it(training: str) -> None:
    entry, trained = manifest.entry(f"{training}-inference"), WORKLOADS[training]
    assert entry.mode == "inference"
    assert (entry.family, entry.lineage, entry.split) == (trained.family, trained.lineage, splits.fixed(trained.lineage))


@pytest.mark.parametrize("training", sorted(BATCHES.keys() - IN_PART))
def test_the_forward_products_are_those_of_training_for_its_batch(training: str) -> None:
    here, there = BATCHES[training]
    assert products(inference(training)) * there == products(manifest.graph(training)) * here


def test_clip_compares_every_image_with_every_text() -> None:
    here, there = BATCHES["clip-b32"]
    pairs = {"clip-b32-inference": 2 * here**2 * 512, "clip-b32": 2 * there**2 * 512}
    each, trained = (products(manifest.graph(name)) - compared for name, compared in pairs.items())
    assert each * there == trained * here


def test_the_towers_run_for_as_many_as_they_are_asked() -> None:
    """A tower of 6 features and one of 4: two layers each feature, three crosses, three deep layers and one that joins."""
    per_row = [
        features * (64 * 1024 + 1024 * 256) + 3 * width**2 + width * 2048 + 2048**2 + 2048 * 1024 + (width + 1024) * 256
        for features, width in ((6, 6 * 256), (4, 4 * 256))
    ]
    for name, users in zip(("two-tower-inference", "two-tower"), BATCHES["two-tower"], strict=True):
        assert products(manifest.graph(name)) == 2 * (users * per_row[0] + 4096 * per_row[1] + users * 4096 * 256)


@pytest.mark.parametrize("training", BATCHES)
def test_it_holds_the_same_parameters_without_an_optimiser(training: str) -> None:
    """Plain SGD keeps nothing, Adam two moments and a counter of 4 bytes."""
    slots, counter = (1, 0) if training == "dlrm" else (3, 4)
    assert {name: slots * size + counter for name, size in parameters(inference(training)).items()} == parameters(manifest.graph(training))


@pytest.mark.parametrize("name", [*(f"{training}-inference" for training in BATCHES), *sorted(UNTRAINED)])
def test_it_only_runs_forward(name: str) -> None:
    graph = manifest.graph(name)
    assert set(graph.phase.values) <= {"forward", "other"} and (graph.phase.index != NONE).all()
    assert graph.output_is_result.sum() == (2 if name == "retinanet-inference" else 1)  # classes and boxes
    assert not graph.canonical_kind.among(["other", "random", "update"]).any()


@pytest.mark.parametrize("training", sorted(BATCHES.keys() - {"bert-base"}))  # transformers makes its mask in another way for export
def test_layers_are_those_of_training(training: str) -> None:
    assert set(inference(training).layer.values) <= set(manifest.graph(training).layer.values)


def test_time_steps_are_those_of_training() -> None:
    assert set(inference("gru-lm").time_step.tolist()) == {NONE, *range(35)}
