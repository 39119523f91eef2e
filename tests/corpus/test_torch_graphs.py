"""The PyTorch graphs of the corpus: what their files hold is what their builders build."""

from __future__ import annotations

import numpy as np
import pytest
from support.rebuilding import rebuilt
from support.torch_checks import PRODUCTS, counted_products, flops_of, parameter_bytes

from datasets.build_torch import WORKLOADS, traced
from gnnplace.corpus import manifest


@pytest.mark.parametrize("name", rebuilt(WORKLOADS))
def test_rebuilding_gives_the_checksum_of_the_manifest(name: str) -> None:
    step = traced(name)
    assert step.graph.sha256 == manifest.entry(name).sha256
    assert not step.graph.uncounted


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_the_manifest_says_is_what_the_builder_says(name: str) -> None:
    entry, described = manifest.entry(name), WORKLOADS[name]
    said = (described.family, described.lineage, described.mode, described.source)
    assert (entry.family, entry.lineage, entry.mode, entry.source) == said
    assert entry.builder == f"python -m datasets.build_torch {name}"


@pytest.mark.parametrize("name", ["bert-base", "two-tower"])
def test_products_count_as_torch_counts_them(name: str) -> None:
    assert flops_of(manifest.graph(name), *PRODUCTS) == counted_products(name)


@pytest.mark.parametrize(("name", "parameters"), [("bert-base", 109_514_298), ("gpt2", 124_439_808)])
def test_persistent_memory_is_the_published_number_of_parameters(name: str, parameters: int) -> None:
    """Parameter and two moments in float32."""
    assert parameter_bytes(name) == 12 * parameters


def test_experts_are_parallel_branches() -> None:
    """The up-projections of the eight experts of a layer lie at the same depth."""
    graph = manifest.graph("moe-8e")
    projections = graph.kind.among(["aten.addmm"])
    depths = [graph.level[projections & graph.layer.among([f"layers.2.experts.experts.{expert}.up"])] for expert in range(8)]
    assert {len(depth) for depth in depths} == {1}
    assert len(set(np.concatenate(depths).tolist())) == 1


def test_unknown_workloads_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'bert' is none of bert-base, gpt2"):
        traced("bert")
