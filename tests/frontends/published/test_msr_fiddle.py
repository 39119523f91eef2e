"""Graphs of msr-fiddle/dnn-partitioning: a small document by hand, bad ones, and the published ones where a folder holds them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnplace.frontends.published import msr_fiddle
from gnnplace.frontends.published.msr_fiddle import read_msr_fiddle
from gnnplace.graph import NONE, ComputationGraph

FOLDER = "GNNPLACE_MSR_FIDDLE"  # the folder of the published documents


def node(identity: int, **changes: Any) -> dict[str, Any]:
    plain = {"id": identity, "name": f"n{identity}", "supportedOnFpga": 1, "cpuLatency": 2.5, "fpgaLatency": 0.25,
             "isBackwardNode": 0, "colorClass": identity, "size": 1000.0}  # fmt: skip
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


def document(**changes: Any) -> dict[str, Any]:
    nodes = [
        node(7, colorClass=3, layerId=4),
        node(2, supportedOnFpga=False, cpuLatency=1, fpgaLatency=0),
        node(9, isBackwardNode=True, colorClass=3, size=0.4),
        node(4, cpuLatency=0, fpgaLatency=0.0, colorClass=None),
    ]
    edges = [
        {"sourceId": 7, "destId": 2, "cost": 0.5, "size": 64.0}, {"sourceId": 7, "destId": 9, "cost": 0.5, "size": 64},
        {"sourceId": 7, "destId": 4, "cost": 0.1, "size": 8.0}, {"sourceId": 2, "destId": 9, "cost": 0.0, "size": 0.125},
    ]  # fmt: skip
    return {"maxSizePerFPGA": 1e9, "maxFPGAs": 4, "maxCPUs": 1, "nodes": nodes, "edges": edges} | changes


def read(found: object) -> ComputationGraph:
    return read_msr_fiddle(json.dumps(found).encode(), name="small")


@pytest.fixture(scope="module")
def graph() -> ComputationGraph:
    return read(document())


def test_times_are_nanoseconds_where_the_node_may_stand(graph: ComputationGraph) -> None:
    assert graph.name == "small"
    assert graph.op_names == ("n7", "n2", "n9", "n4")
    assert graph.given_keys == ("cpu", "gpu")
    assert graph.given_time_ns.tolist() == [[2_500_000, 250_000], [1_000_000, NONE], [2_500_000, 250_000], [0, 0]]
    assert graph.kernel.tolist() == [True, True, True, False]


def test_sizes_stay_and_edges_of_one_size_are_one_output(graph: ComputationGraph) -> None:
    assert graph.persistent_bytes.tolist() == [1000, 1000, 0, 1000]
    assert graph.output_ptr.tolist() == [0, 2, 3, 3, 3]
    assert graph.output_bytes.tolist() == [64, 8, 0]
    edges = zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True)
    assert list(edges) == [(0, 0, 1), (0, 0, 2), (0, 1, 3), (1, 0, 2)]


def test_colour_classes_share_a_device(graph: ComputationGraph) -> None:
    assert [graph.colocation[op] for op in range(4)] == ["color 3", None, "color 3", None]


def test_layers_and_phases(graph: ComputationGraph) -> None:
    assert graph.block.tolist() == [4, NONE, NONE, NONE]
    assert [graph.phase[op] for op in range(4)] == ["forward", "forward", "backward_data", "forward"]


EDGE = {"sourceId": 7, "destId": 2, "cost": 0, "size": 1}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([], "document: a list: an object is due"),
        (document(edges=[{**EDGE, "destId": 5}]), "edges[0].destId: no node has the id 5"),
        (document(nodes=[node(1), node(1)], edges=[]), "nodes[1].id: 1 is not unique; nodes[0] has it, too"),
        (document(nodes=[node(1), node(2, name="n1")], edges=[]), "nodes[1].name: 'n1' is not unique"),
        (document(nodes=[], edges=[]), "nodes: "),
        (document(nodes=[node(1, size=-1)], edges=[]), "nodes[0].size: -1: "),
        (document(nodes=[node(1, size=2e15)], edges=[]), "nodes[0].size: 2000000000000000.0: "),
        (document(nodes=[node(1, fpgaLatency=1e12)], edges=[]), "nodes[0].fpgaLatency: 1000000000000.0: "),
        (document(nodes=[node(1, cpuLatency="1")], edges=[]), "nodes[0].cpuLatency: '1': "),
        (document(nodes=[node(1, cpuLatency=float("nan"))], edges=[]), "nodes[0].cpuLatency: NaN: a number has to be finite"),
        (document(nodes=[node(1, supportedOnFpga=2)], edges=[]), "nodes[0].supportedOnFpga"),
        (document(nodes=[node(1, size=None)], edges=[]), "nodes[0].size: is missing"),
        (document(nodes=[node(1, colourClass=1)], edges=[]), "nodes[0].colourClass: unknown key; nearest is 'colorClass'"),
        (document(edges=[EDGE, {**EDGE, "sourceId": 2, "destId": 7}]), "lies on or behind a cycle"),
        (document(edges=[{**EDGE, "destId": 7}]), "lies on or behind a cycle"),
    ],
)
def test_bad_documents_are_refused_with_their_place(bad: object, said: str) -> None:
    with pytest.raises(ValueError) as raised:
        read(bad)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_long_files_are_refused_unread_and_the_path_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "long.json").write_text(json.dumps(document()))
    monkeypatch.setattr(msr_fiddle, "MAX_DOCUMENT_BYTES", 100)
    with pytest.raises(ValueError, match=r"long\.json: longer than the 100 bytes"):
        read_msr_fiddle(tmp_path / "long.json", name="long")


@pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no folder of msr-fiddle's documents")
def test_published_documents_keep_their_work() -> None:
    files = sorted(Path(os.environ[FOLDER]).rglob("*.json"))
    assert files
    for file in files:
        found, graph = json.loads(file.read_text()), read_msr_fiddle(file, name=file.stem)
        assert (graph.num_ops, graph.num_edges) == (len(found["nodes"]), len(found["edges"]))
        for column, key in enumerate(("cpuLatency", "fpgaLatency")):
            expected = sum(node[key] for node in found["nodes"])
            assert np.isclose(graph.given_time_ns[:, column].sum() / 1e6, expected, rtol=1e-6)
