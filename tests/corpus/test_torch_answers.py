"""Inference graphs beside the training steps of the same networks: what they hold and what they compute, but no training."""

from __future__ import annotations

import numpy as np
import pytest
from torch_checks import PRODUCTS

from datasets.build_torch import WORKLOADS
from gnnplace.corpus import manifest, splits
from gnnplace.graph import NONE, ComputationGraph

BATCHES = {
    "stable-diffusion": (2, 4), "llama-7b": (1, 1), "t5-base": (1, 8), "deepspeech2": (1, 32), "deepfm": (128, 4096), "gat": (1, 1),
    "graphsage": (64, 512), "clip-b32": (32, 128), "two-tower": (1, 1),
}  # fmt: skip
"""Of inference and of training; what follows the batch only in part is counted by hand."""
ONLY_FORWARD = [*(f"{trained}-inference" for trained in BATCHES), "mixtral-8x7b-inference", "llama-1b-decode"]


def products(graph: ComputationGraph) -> int:
    found = graph.canonical_kind.among([*PRODUCTS, "attention"]) & graph.phase.among(["forward"])
    return int(graph.flops[found].sum())


def parameters(name: str) -> dict[str, int]:
    graph = manifest.graph(name)
    held = np.flatnonzero(graph.kind.among(["parameter"])).tolist()
    return {graph.op_names[op]: int(graph.persistent_bytes[op]) for op in held}


@pytest.mark.parametrize("trained", BATCHES)
def test_family_and_lineage_are_those_of_training(trained: str) -> None:
    entry, step = manifest.entry(f"{trained}-inference"), WORKLOADS[trained]
    assert (entry.mode, entry.family, entry.lineage, entry.split) == ("inference", step.family, step.lineage, splits.fixed(step.lineage))


@pytest.mark.parametrize("trained", sorted(BATCHES.keys() - {"clip-b32", "two-tower"}))
def test_the_forward_products_are_those_of_training_for_its_batch(trained: str) -> None:
    here, there = BATCHES[trained]
    assert products(manifest.graph(f"{trained}-inference")) * there == products(manifest.graph(trained)) * here


def test_clip_compares_every_image_with_every_text() -> None:
    pairs = {name: products(manifest.graph(name)) - 2 * batch**2 * 512 for name, batch in (("clip-b32", 128), ("clip-b32-inference", 32))}
    assert pairs["clip-b32"] == 4 * pairs["clip-b32-inference"]


def test_the_towers_run_for_as_many_as_they_are_asked() -> None:
    """A tower of 6 features and one of 4: two layers each feature, three crosses, three deep layers and one that joins."""
    per_row = [
        features * (64 * 1024 + 1024 * 256) + 3 * width**2 + width * 2048 + 2048**2 + 2048 * 1024 + (width + 1024) * 256
        for features, width in ((6, 6 * 256), (4, 4 * 256))
    ]
    for name, users, items in (("two-tower", 4096, 4096), ("two-tower-inference", 16, 4096)):
        assert products(manifest.graph(name)) == 2 * (users * per_row[0] + items * per_row[1] + users * items * 256)


@pytest.mark.parametrize("trained", BATCHES)
def test_it_holds_the_same_parameters_without_an_optimiser(trained: str) -> None:
    """Adam keeps two moments and a counter of 4 bytes."""
    assert {name: 3 * size + 4 for name, size in parameters(f"{trained}-inference").items()} == parameters(trained)


@pytest.mark.parametrize("name", ONLY_FORWARD)
def test_it_only_runs_forward(name: str) -> None:
    graph = manifest.graph(name)
    assert set(graph.phase.values) <= {"forward", "other"} and (graph.phase.index != NONE).all()
    assert graph.output_is_result.sum() == 1
    assert not graph.canonical_kind.among(["other", "random", "update"]).any()
