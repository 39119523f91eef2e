"""The blind test set: graphs that nothing is placed on before settings are frozen, so what is checked here is what they hold, by hand."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from gnnplace.corpus import manifest
from gnnplace.graph import NONE, ComputationGraph

PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight")


class Sizes(NamedTuple):
    """What a step must hold: parameters, optimiser slots of each, other persistent bytes; multiply-adds of the forward products, and
    of those whose first factor is an input or a constant, so that it needs no gradient."""

    parameters: int
    slots: int
    other_bytes: int
    forward: int
    without_input_gradient: int


def unet() -> Sizes:
    """By hand, layer for layer, of 16 images."""
    parameters, products = 128 * 27 + 128 + 128 * 512 + 512 + 512 * 512 + 512, 64**2 * 128 * 27  # stem and time
    once = 128 * 512 + 512 * 512  # the time's own network has no positions
    down = [(128, 128, 64), (128, 128, 64), (128, 256, 32), (256, 256, 32), (256, 512, 16), (512, 512, 16)]
    up = [(1024, 512, 16), (1024, 512, 16), (768, 512, 16), (768, 256, 32), (512, 256, 32), (384, 256, 32),
          (384, 128, 64), (256, 128, 64), (256, 128, 64)]  # fmt: skip
    for before, after, side in (*down, (512, 512, 16), (512, 512, 16), *up):
        shortcut = before * after if before != after else 0
        norms, biases = 2 * (before + after), 3 * after + (after if shortcut else 0)
        weights = 9 * after * (before + after) + shortcut
        parameters += norms + biases + weights + 512 * after
        products, once = products + side**2 * weights, once + 512 * after
    for _ in range(6):  # attention: the two blocks down, the first in the middle, the three up
        parameters += 2 * 512 + 4 * 512**2 + 4 * 512
        products += 4 * 256 * 512**2 + 2 * 256**2 * 512
    for channels, side in ((128, 32), (256, 16), (512, 32), (256, 64)):  # down and up again
        parameters, products = parameters + 9 * channels**2 + channels, products + side**2 * 9 * channels**2
    parameters, products = parameters + 2 * 128 + 27 * 128 + 3, products + 64**2 * 27 * 128
    return Sizes(parameters, 2, 4 * 246, 16 * (products + once), 16 * (64**2 * 128 * 27 + 128 * 512))


DEEPSPEECH_FIRST, DEEPSPEECH_SECOND = 32 * 41 * 11, 32 * 32 * 21 * 11
SIZES = {
    "resnet-50": Sizes(25_557_032, 1, 4 * 2 * 26_560, 32 * (3_855_925_248 + 2048 * 1000), 32 * 64 * 112**2 * 3 * 49),
    "nasnet-mobile": Sizes(5_289_978, 2, 4 * 36_738, 32 * 563_638_816, 32 * 111**2 * 32 * 27),  # as in keras.applications
    "dlrm": Sizes(33_762_577 * 64 + 499_521, 0, 8 * 351, 2048 * (154_112 + 27 * 27 * 64 + 343_808), 2048 * 13 * 512),
    "deepfm": Sizes(1_086_810 * 17 + 1 + 250_000 + 2 * 160_400 + 401, 2, 4 * 87, 4096 * (624 * 400 + 2 * 400**2 + 400), 0),
    "gru-lm": Sizes(39_382_800, 2, 4 * 15, 35 * 64 * (6 * 1024 * 3072 + 1024 * 10_000), 3 * 64 * 1024 * 3072),
    "deepspeech2": Sizes(
        DEEPSPEECH_FIRST + DEEPSPEECH_SECOND + 4 * 32 + 2 * (1312 + 4 * 800) * 2400 + 10 * (801 + 2) * 2400 + 801 * 29,
        2, 4 * 58 + 4 * (4 * 32 + 10 * 2 * 2400) + 8 * 12,
        32 * 50 * (81 * DEEPSPEECH_FIRST + 41 * DEEPSPEECH_SECOND + 2 * (1312 + 4 * 800 + 5 * 800) * 2400 + 800 * 29),
        32 * 50 * 81 * DEEPSPEECH_FIRST + 10 * 32 * 800 * 2400,
    ),
    "gcn": Sizes(2 * 256 * 257 + 257 * 40, 2, 4 * 6, 100_000 * (2 * 256**2 + 256 * 40), 100_000 * 256**2),
    "unet": unet(),
}  # fmt: skip
UNROLLED = {"gru-lm": 35, "deepspeech2": 50}

graph = cache(manifest.graph)


def product_flops(graph: ComputationGraph, *phases: str) -> int:
    return int(graph.flops[graph.canonical_kind.among(PRODUCTS) & graph.phase.among(phases)].sum())


@pytest.mark.parametrize("name", SIZES)
def test_the_manifest_counts_them(name: str) -> None:
    entry = manifest.entry(name)
    assert entry.mode == "training"
    assert (entry.ops, entry.edges) == (graph(name).num_ops, graph(name).num_edges)


@pytest.mark.parametrize("name", SIZES)
def test_persistent_memory_is_parameters_and_slots(name: str) -> None:
    sizes = SIZES[name]
    assert graph(name).persistent_bytes.sum() == 4 * sizes.parameters * (1 + sizes.slots) + sizes.other_bytes


@pytest.mark.parametrize("name", SIZES)
def test_forward_products_are_those_of_the_formula(name: str) -> None:
    assert product_flops(graph(name), "forward") == 2 * SIZES[name].forward


@pytest.mark.parametrize("name", SIZES)
def test_the_backward_pass_has_the_products_of_both_gradients(name: str) -> None:
    both = product_flops(graph(name), "backward_data", "backward_weight")
    assert both == 2 * (2 * SIZES[name].forward - SIZES[name].without_input_gradient)


@pytest.mark.parametrize("name", SIZES)
def test_every_kind_has_a_cost_rule(name: str) -> None:
    step = graph(name)
    assert not step.canonical_kind.among(["other"]).any()
    assert (step.phase.index != NONE).all()
    assert {"forward", "backward_data", "backward_weight", "update"} <= set(step.phase.values)


@pytest.mark.parametrize("name", SIZES)
def test_every_variable_is_updated(name: str) -> None:
    step = graph(name)
    held = {step.colocation[int(op)] for op in np.flatnonzero(step.persistent_bytes > 0) if step.kind[int(op)] != "buffer"}
    written = {step.colocation[int(op)] for op in np.flatnonzero(step.phase.among(["update"]) & step.kernel)}
    assert held <= written


@pytest.mark.parametrize("name", UNROLLED)
def test_unrolled_steps_are_alike(name: str) -> None:
    """Every time step but the first and the last, whose states need less, has as many ops and as much arithmetic."""
    step, count = graph(name), UNROLLED[name]
    assert set(step.time_step.tolist()) == {NONE, *range(count)}
    inner = range(1, count - 1)
    assert len({int(np.count_nonzero(step.time_step == time)) for time in inner}) == 1
    assert len({int(step.flops[step.time_step == time].sum()) for time in inner}) == 1
    timeless = step.canonical_kind.among(["matmul"]) & (step.time_step == NONE)
    assert timeless.sum() == {"gru-lm": 0, "deepspeech2": 3 * 11}[name]  # of the whole sequence: the layers' inputs and the head


def test_resnet_computes_no_gradient_of_its_images() -> None:
    step = graph("resnet-50")
    by_kind = {kind: int(step.flops[step.canonical_kind.among([kind])].sum()) for kind in PRODUCTS}
    convolutions = 2 * 32 * 3_855_925_248
    assert by_kind["conv"] == by_kind["conv_grad_weight"] == convolutions
    assert by_kind["conv_grad_input"] == convolutions - 2 * SIZES["resnet-50"].without_input_gradient


def test_dlrm_moves_rows_of_its_tables_never_tables() -> None:
    step = graph("dlrm")
    tables = [op for op in range(step.num_ops) if step.kind[op] == "parameter" and (step.layer[op] or "").startswith("tables")]
    assert len(tables) == 26
    assert step.effective_bytes_accessed[step.kernel].max() < 4 * 64 * 1_000_000
    assert np.count_nonzero(step.kind.among(["aten.index_add_"])) == 26
