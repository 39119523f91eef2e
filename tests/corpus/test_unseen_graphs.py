"""The blind test set: graphs that nothing is placed on before settings are frozen, so what is checked here is what they hold, by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from gnnplace.corpus import manifest
from gnnplace.graph import NONE, ComputationGraph

PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight")
RESNET_FIRST, RESNET_CONVOLUTIONS = 64 * 112**2 * 3 * 49, 3_855_925_248  # multiply-adds of an image

# trained parameters; optimiser slots; float32 and other bytes that are not trained; multiply-adds of the forward products
SIZES = {
    "resnet-50": (25_557_032, 1, 4 * 2 * 26_560, 32 * (3_855_925_248 + 2048 * 1000)),
    "dlrm": (33_762_577 * 64 + 499_521, 0, 8 * 351, 2048 * (154_112 + 27 * 27 * 64 + 343_808)),
    "gru-lm": (39_382_800, 2, 4 * 15, 35 * 64 * (3 * 2 * 1024 * 3072 + 1024 * 10_000)),
}
UNROLLED = {"gru-lm": 35}

graph = cache(manifest.graph)


def product_flops(graph: ComputationGraph, *phases: str) -> int:
    return int(graph.flops[graph.canonical_kind.among(PRODUCTS) & graph.phase.among(phases)].sum())


@pytest.mark.parametrize("name", SIZES)
def test_they_are_held_out(name: str) -> None:
    entry = manifest.entry(name)
    assert (entry.split, entry.mode) == ("test", "training")
    assert (entry.ops, entry.edges) == (graph(name).num_ops, graph(name).num_edges)


@pytest.mark.parametrize("name", SIZES)
def test_persistent_memory_is_parameters_and_slots(name: str) -> None:
    parameters, slots, others, _ = SIZES[name]
    assert graph(name).persistent_bytes.sum() == 4 * parameters * (1 + slots) + others


@pytest.mark.parametrize("name", SIZES)
def test_forward_products_are_those_of_the_formula(name: str) -> None:
    assert product_flops(graph(name), "forward") == 2 * SIZES[name][3]


@pytest.mark.parametrize("name", SIZES)
def test_the_backward_pass_has_twice_the_products(name: str) -> None:
    """But for the gradient of the step's own inputs, which nobody needs."""
    forward, backward = product_flops(graph(name), "forward"), product_flops(graph(name), "backward_data", "backward_weight")
    assert 1.9 * forward < backward <= 2 * forward


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
    outside = step.flops[step.time_step == NONE].sum()
    assert outside < 0.05 * step.flops.sum()


def test_resnet_computes_no_gradient_of_its_images() -> None:
    step = graph("resnet-50")
    by_kind = {kind: int(step.flops[step.canonical_kind.among([kind])].sum()) for kind in PRODUCTS}
    convolutions = 2 * 32 * RESNET_CONVOLUTIONS
    assert by_kind["conv"] == by_kind["conv_grad_weight"] == convolutions
    assert by_kind["conv_grad_input"] == convolutions - 2 * 32 * RESNET_FIRST


def test_dlrm_moves_rows_of_its_tables_never_tables() -> None:
    step = graph("dlrm")
    tables = [op for op in range(step.num_ops) if step.kind[op] == "parameter" and (step.layer[op] or "").startswith("tables")]
    assert len(tables) == 26
    assert step.effective_bytes_accessed[step.kernel].max() < 4 * 64 * 1_000_000
    assert np.count_nonzero(step.kind.among(["aten.index_add_"])) == 26
