"""The inference graphs of the corpus beside the training steps of the same networks, which other tests check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from datasets.build import torch_inference_models
from datasets.build.torch_inference_models import TRAINED
from gnnplace.corpus import manifest, splits
from gnnplace.graph import NONE, ComputationGraph

PRODUCTS = ("matmul", "batch_matmul", "conv", "attention")
BATCHES = {
    "bert-base": (8, 32), "gpt2": (1, 4), "moe-8e": (1, 8), "dlrm": (128, 2048), "gru-lm": (16, 64), "unet": (2, 16),
    "densenet-121": (8, 32), "mobilenet-v2": (1, 64), "convnext-tiny": (8, 64), "swin-t": (8, 64), "vit-b16": (8, 32),
    "wavenet-2x18": (1, 8), "whisper-base": (1, 16), "retinanet": (1, 2), "deeplab-v3": (1, 16),
}  # fmt: skip


def inference(training: str) -> ComputationGraph:
    return manifest.graph(f"{training}-inference")


def products(graph: ComputationGraph) -> int:
    return int(graph.flops[graph.canonical_kind.among(PRODUCTS) & graph.phase.among(["forward"])].sum())


def parameters(graph: ComputationGraph) -> dict[str, int]:
    held = np.flatnonzero(graph.kind.among(["parameter"])).tolist()
    return {graph.op_names[op]: int(graph.persistent_bytes[op]) for op in held}


def test_every_network_is_one_that_is_trained() -> None:
    assert {f"{training}-inference" for training in BATCHES} == set(torch_inference_models.WORKLOADS)


@pytest.mark.parametrize("training", BATCHES)
def test_it_is_told_from_training_and_never_parted_from_it(training: str) -> None:
    entry, trained = manifest.entry(f"{training}-inference"), TRAINED[training]
    assert entry.mode == "inference"
    assert (entry.family, entry.lineage, entry.split) == (trained.family, trained.lineage, splits.fixed(trained.lineage))


@pytest.mark.parametrize("training", BATCHES)
def test_the_forward_products_are_those_of_training_for_its_batch(training: str) -> None:
    here, there = BATCHES[training]
    assert products(inference(training)) * there == products(manifest.graph(training)) * here


@pytest.mark.parametrize("training", BATCHES)
def test_it_holds_the_same_parameters_without_an_optimiser(training: str) -> None:
    held, trained = parameters(inference(training)), parameters(manifest.graph(training))
    assert held.keys() == trained.keys()
    slots = 1 if training == "dlrm" else 3  # plain SGD, or Adam with a counter of 4 bytes
    counter = 0 if training == "dlrm" else 4
    assert {name: slots * size + counter for name, size in held.items()} == trained


@pytest.mark.parametrize("training", BATCHES)
def test_it_only_runs_forward(training: str) -> None:
    graph = inference(training)
    assert set(graph.phase.values) <= {"forward", "other"}
    assert (graph.phase.index != NONE).all()
    assert graph.output_is_result.sum() == (2 if training == "retinanet" else 1)  # classes and boxes
    assert not graph.canonical_kind.among(["other", "random", "update"]).any()


def test_layers_and_time_steps_are_those_of_training() -> None:
    for training in BATCHES.keys() - {"bert-base"}:  # transformers makes BERT's mask in another way where it is exported
        assert set(inference(training).layer.values) <= set(manifest.graph(training).layer.values)
    assert set(inference("gru-lm").time_step.tolist()) == {NONE, *range(35)}
