"""The Keras models of the corpus: published parameters, arithmetic, blocks, and that rebuilding gives the same graph."""

import numpy as np
import pytest
from support.slow import thorough

pytest.importorskip("tensorflow")

from datasets.build.keras_applications import WORKLOADS
from datasets.build_keras import graph, workload
from gnnplace.corpus import manifest
from gnnplace.graph import NONE

# All parameters, those of batch norms' moving averages too, as the documentation of keras.applications lists them in millions
MILLIONS = {
    "xception": 22.9, "inception-resnet-v2": 55.9, "nasnet-large-inference": 88.9, "efficientnet-v2-s-inference": 21.6,
    "mobilenet-v3-inference": 5.5,
}  # fmt: skip
SLOTS = {"xception": 1, "inception-resnet-v2": 1}  # of the optimiser, a weight
TRAINED = {"xception": 22_855_952, "inception-resnet-v2": 55_813_192}  # Chollet, 2017, table 3; counted
MOVING = {"xception": 54_528, "inception-resnet-v2": 60_544}
REBUILT = ("mobilenet-v3-inference", "xception")  # an inference and a training step; the others, which are larger, by make rebuild


@pytest.mark.parametrize("name", [name if name in REBUILT else thorough(name) for name in WORKLOADS])
def test_rebuilding_gives_the_checksum_of_the_manifest(name):
    assert graph(name).sha256 == manifest.entry(name).sha256


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_the_manifest_says_is_what_the_builder_says(name):
    entry, described = manifest.entry(name), WORKLOADS[name]
    assert (entry.family, entry.lineage, entry.mode, entry.source) == (
        described.family, described.lineage, described.mode, described.source,
    )  # fmt: skip
    assert entry.builder == f"python -m datasets.build_keras {name}" and not manifest.graph(name).uncounted


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - set(TRAINED)))
def test_inference_holds_the_published_number_of_parameters(name):
    assert round(manifest.graph(name).persistent_bytes.sum() / 4e6, 1) == pytest.approx(MILLIONS[name], abs=0.051)


@pytest.mark.parametrize("name", TRAINED)
def test_training_holds_weights_averages_and_slots(name):
    held = TRAINED[name] * (1 + SLOTS[name]) + MOVING[name]
    assert manifest.graph(name).persistent_bytes.sum() == 4 * held + 8 + 4  # Keras' iteration and rate
    assert round((TRAINED[name] + MOVING[name]) / 1e6, 1) == MILLIONS[name]


def test_xception_has_the_products_of_its_modules():
    """The entry flow's first convolution and a module of the middle flow (728 channels, 19 x 19), at batch 32."""
    step = manifest.graph("xception")
    flops = {layer: int(step.flops[step.layer.among([layer]) & step.canonical_kind.among(["conv"])].sum()) for layer in step.layer.values}
    assert flops["block1_conv1"] == 2 * 32 * 149 * 149 * 32 * 27
    assert flops["block5_sepconv1"] + flops.get("block5_sepconv1/separable_conv2d", 0) == 2 * 32 * 19 * 19 * (728 * 9 + 728 * 728)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_op_that_works_has_a_block(name):
    step = manifest.graph(name)
    without, blocks = step.block == NONE, sorted(set(step.block.tolist()) - {NONE})
    assert step.flops[without].sum() < 10
    assert blocks == list(range(blocks[0], blocks[-1] + 1)) and len(blocks) >= 14
    if step.phase.among(["update"]).any():
        assert {step.phase[int(op)] for op in np.flatnonzero(step.block == step.block.max() - 1)} >= {"forward", "backward_data", "update"}


def test_unknown_workloads_are_refused_by_name():
    with pytest.raises(ValueError, match="workload: 'resnet' is none of xception"):
        workload("resnet")
