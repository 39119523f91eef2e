"""The graphs of the transformers hold the published number of parameters, and the products that torch counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.torch_checks import PRODUCTS, counted_products, flops_of, parameter_bytes

from datasets.build import transformer_xl
from datasets.build.torch_transformers import WORKLOADS
from gnnplace.corpus import manifest

PARAMETERS = {
    "bert-large": 335_174_458, "gpt2-medium": 354_823_168, "gpt2-xl": 1_557_611_200, "llama-1b": 1_100_048_384, "llama-7b": 6_738_415_616,
    "t5-base": 222_903_552, "t5-large": 737_668_096, "vit-b16": 86_567_656, "vit-l16": 304_326_632, "clip-b32": 151_277_313,
}  # fmt: skip
LAYER_OF_XL, REST_OF_XL = 5 * 512**2 + 2 * 512 * 2048 + 2048 + 512 + 4 * 512, 204 * 512 + 204 + 2 * 512


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_products_count_as_torch_counts_them(name: str) -> None:
    """Where attention is one kernel, its backward computes the scores once more than the separate products that torch counts: 7 to 6."""
    graph = manifest.graph(name)
    assert 7 * (counted_products(name) - flops_of(graph, *PRODUCTS)) == 6 * flops_of(graph, "attention")


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_persistent_memory_is_the_published_number_of_parameters(name: str, parameters: int) -> None:
    """Parameter and two moments in float32, and a 4-byte counter for each tensor."""
    assert parameter_bytes(name) == 12 * parameters


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_transformer_xl_has_so_many_layers(layers: int) -> None:
    assert parameter_bytes(f"transformer-xl-{layers}") == 12 * (layers * LAYER_OF_XL + REST_OF_XL)


def test_twelve_layers_of_transformer_xl_have_the_published_number_of_parameters() -> None:
    with torch.device("meta"):
        module = transformer_xl.TransformerXL(transformer_xl.Sizes(layers=12))
    assert sum(parameter.numel() for parameter in module.parameters()) == 41_055_436 == 12 * LAYER_OF_XL + REST_OF_XL


@pytest.mark.parametrize(("name", "rows"), [("llama-7b", 32), ("t5-base", 24), ("vit-l16", 24), ("gpt2-xl", 48), ("transformer-xl-8", 8)])
def test_every_layer_is_a_block_of_equal_work(name: str, rows: int) -> None:
    """What an expert places together; T5's decoder is numbered after its encoder."""
    graph = manifest.graph(name)
    blocked = graph.block >= 0
    work = np.bincount(graph.block[blocked], weights=graph.flops[blocked].astype(np.float64))
    parts = (work[:12], work[12:]) if name == "t5-base" else (work,)
    assert len(work) == rows
    for part in parts:
        assert part.max() <= 1.01 * part.min()
