"""The OpenVINO graphs of the corpus: what their files hold is what their builders build, and costs what torch counts."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from datasets import build_openvino
from datasets.build import openvino_models
from datasets.build_openvino import WORKLOADS
from gnnplace.corpus import manifest
from gnnplace.frontends.openvino.read import read_openvino

PRODUCTS = ("matmul", "batch_matmul", "conv")
NAMES = ("inception-v3-openvino", "resnet-50-openvino", "bert-base-openvino")


class Counts(NamedTuple):
    """Layers and edges of the file with weights as float32, converts that float16 adds, and the elements of all weights."""

    layers: int
    edges: int
    converts: int
    weights: int


COUNTS = {
    "inception-v3-openvino": Counts(502, 536, 190, 23_834_568 - 2 * 17_216 + 17_216),  # a bias in place of a scale and an offset
    "resnet-50-openvino": Counts(286, 301, 108, 25_557_032 - 2 * 26_560 + 26_560),
    "bert-base-openvino": Counts(840, 906, 212, 109_482_240 - (512 - 8) * 768),  # of 512 positions the 8 that a sentence has
}


def test_they_are_the_workloads_there_are() -> None:
    assert set(WORKLOADS) == set(NAMES)
    with pytest.raises(ValueError, match="workload: 'bert' is none of inception-v3-openvino, "):
        build_openvino.read("bert")


@pytest.mark.skipif(find_spec("openvino") is None, reason="the package openvino is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_rebuilding_gives_the_checksum_of_the_manifest_whatever_the_weights_are_stored_as(name: str, tmp_path: Path) -> None:
    counts = COUNTS[name]
    for compressed in (False, True):
        file = openvino_models.save(WORKLOADS[name], tmp_path / f"{name}.xml", compressed)
        text = file.read_text()
        converts = counts.converts * compressed
        assert (len(re.findall("<layer ", text)), len(re.findall("<edge ", text))) == (counts.layers + converts, counts.edges + converts)
        found = read_openvino(file)
        assert found.sha256 == manifest.entry(name).sha256 and not found.uncounted


@pytest.mark.parametrize("name", NAMES)
def test_what_the_manifest_says_is_what_the_builder_says(name: str) -> None:
    entry, described = manifest.entry(name), WORKLOADS[name]
    assert (entry.family, entry.lineage, entry.source) == (described.family, described.lineage, described.source)
    assert entry.builder == f"python -m datasets.build_openvino {name}"


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_published_with_batch_norm_folded(name: str) -> None:
    assert manifest.graph(name).persistent_bytes.sum() == 4 * COUNTS[name].weights


@pytest.mark.parametrize("name", NAMES)
def test_products_count_as_torch_counts_them(name: str) -> None:
    graph, workload = manifest.graph(name), WORKLOADS[name]
    module = workload.build().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(**workload.inputs)
    assert graph.flops[graph.canonical_kind.among(PRODUCTS)].sum() == counter.get_total_flops()


@pytest.mark.parametrize("name, blocks", [("inception-v3-openvino", 12), ("resnet-50-openvino", 16), ("bert-base-openvino", 12)])
def test_blocks_are_those_of_the_network(name: str, blocks: int) -> None:
    graph = manifest.graph(name)
    assert {int(block) for block in graph.block[graph.canonical_kind.among(["conv", "normalization"])] if block >= 0} <= set(range(blocks))
    assert {int(block) for block in graph.block if block >= 0} == set(range(blocks))
    assert set(graph.phase.values) == {"forward"} and manifest.entry(name).mode == "inference"
