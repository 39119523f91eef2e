"""Measured costs as documents: they come back as they were, are complete, and a bad one is refused at its place."""

import json
import time

import numpy as np
import pytest

from gnnplace.costs.measured import NOT_MEASURED, CostProvenance, LinkSample, MeasuredCosts
from gnnplace.formats.costs import costs_document, read_costs, write_costs
from gnnplace.graph import ComputationGraph, Op, Output

GRAPH = ComputationGraph.from_ops("three", [Op("x", "Read", (Output(8),)), Op("left", "MatMul"), Op("host", "Log", allowed=("cpu",))], [])
COSTS = {
    "format": "gnnplace.costs", "version": 1,
    "graph": {"name": "three", "sha256": GRAPH.sha256, "ops": 3},
    "time_ns": {"cpu": {"left": 7, "x": 0, "host": 3}, "gpu": {"x": 2, "left": 5}, "gpu:1": {"x": 1, "left": 4}},
    "links": [{"src": "cpu", "dst": "gpu", "samples": [[8, 20, 30], [1000, 90, 101]]}],
    "provenance": {"tool": "gnnplace 0.1.0", "hardware": "two cores", "date": "2026-11-30", "steps": 30},
}  # fmt: skip


def text(document):
    return json.dumps(document).encode()


def test_costs_are_read_by_name_of_op():
    costs = read_costs(text(COSTS), GRAPH)
    assert {key: times.tolist() for key, times in costs.time_ns.items()} == {
        "cpu": [0, 7, 3], "gpu": [2, 5, NOT_MEASURED], "gpu:1": [1, 4, NOT_MEASURED]
    }  # fmt: skip
    assert costs.links == {("cpu", "gpu"): (LinkSample(8, 20, 30), LinkSample(1000, 90, 101))}
    assert costs.provenance == CostProvenance("gnnplace 0.1.0", "two cores", "2026-11-30", 30)
    assert (costs.graph_name, costs.graph_sha256, costs.op_names) == ("three", GRAPH.sha256, ("x", "left", "host"))


def test_written_costs_are_read_again(tmp_path):
    costs = read_costs(text(COSTS), GRAPH)
    assert costs_document(costs) == COSTS
    write_costs(tmp_path / "costs.json", costs)
    assert costs_document(read_costs(tmp_path / "costs.json", GRAPH)) == COSTS
    assert [path.name for path in tmp_path.iterdir()] == ["costs.json"]


def test_only_the_times_are_required():
    costs = read_costs(text({key: COSTS[key] for key in ("format", "version", "time_ns")}), GRAPH)
    assert costs.links == {} and costs.provenance is None and costs.graph_sha256 == GRAPH.sha256


LINK = {"src": "cpu", "dst": "gpu", "samples": [[8, 20, 30]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time_ns": {}}, "time_ns: a dict: dictionary should have at least 1 item"),
        ({"time_ns": {"cpu": {"x": 1, "left": 1}}}, "time_ns.cpu: op 'host' has no entry (1 of 3 ops have none)"),
        ({"time_ns": {"gpu": {"x": 1}}}, "time_ns.gpu: op 'left' has no entry (1 of 2 ops have none)"),
        ({"time_ns": {"gpu": {"x": 1, "left": 1, "lefd": 1}}}, "time_ns.gpu.lefd: 'lefd' is no op of 'three'; nearest is 'left'"),
        ({"time_ns": {"gpu": {"x": 1, "left": -1}}}, "time_ns.gpu.left: -1: input should be greater than or equal to 0"),
        ({"time_ns": {"gpu": {"x": 1, "left": 2**51}}}, "time_ns.gpu.left: 2251799813685248: input should be less than"),
        ({"time_ns": {"gpu": {"x": 1, "left": 1.5}}}, "time_ns.gpu.left: 1.5: input should be a valid integer"),
        ({"time_ns": {"gpu": [1, 2]}}, "time_ns.gpu: a list: input should be a valid dictionary"),
        ({"links": [LINK, LINK]}, "links[1]: a second entry from 'cpu' to 'gpu'; at most one for an ordered pair"),
        ({"links": [LINK | {"samples": []}]}, "links[0].samples: a list: list should have at least 1 item"),
        ({"links": [LINK | {"samples": [[8, -20, 30]]}]}, "links[0].samples[0][1]: -20: input should be greater than or equal to 0"),
        ({"links": [LINK | {"samples": [[8, 20]]}]}, "links[0].samples[0][2]: is missing"),
        ({"links": [LINK | {"channel": "bus"}]}, "links[0].channel: unknown key"),
        ({"graph": {"ops": 4}}, "graph.ops: 4 is not 3, that of 'three'; the costs are for another graph"),
        ({"graph": {"sha256": "0" * 64}}, "graph.sha256: " + "0" * 64 + " is not"),
        ({"provenance": {"tool": "t", "hardware": "h", "date": "today", "steps": 3}}, "provenance.date: 'today': string should match"),
        ({"provenance": {"tool": "t", "hardware": "h", "date": "2026-11-30", "steps": 0}}, "provenance.steps: 0: input should be greater"),
        ({"times_ns": {}}, "times_ns: unknown key; nearest is 'time_ns'"),
        ({"version": 2}, "version: 2 is not known; this reader knows 1"),
    ],
)  # fmt: skip
def test_bad_costs_are_refused_at_their_place(change, message):
    with pytest.raises(ValueError) as caught:
        read_costs(text(COSTS | change), GRAPH)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_an_op_with_two_times_is_refused():
    twice = text(COSTS).replace(b'"left": 7', b'"left": 7, "left": 8')
    with pytest.raises(ValueError, match=r"time_ns\.cpu\.left: 'left': a key may stand once in an object"):
        read_costs(twice, GRAPH)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({}, "at least one device kind"),
        ({"cpu": np.array([1, 2])}, "time_ns.cpu: 2 times; the graph 'three' has 3 ops"),
        ({"cpu": np.array([1, -2, 3])}, "time_ns.cpu.left: -2 is not between 0 and"),
    ],
)
def test_costs_that_cannot_be_are_not_built(times, message):
    with pytest.raises(ValueError, match=message):
        MeasuredCosts("three", GRAPH.sha256, GRAPH.op_names, times)


@pytest.mark.slow
def test_many_ops_are_read_in_about_a_second():
    num_ops = 100_000
    graph = ComputationGraph.from_ops("many", [Op(f"layer/{op}/MatMul", "MatMul") for op in range(num_ops)], [])
    times = {kind: np.arange(num_ops) for kind in ("cpu", "gpu")}
    data = text(costs_document(MeasuredCosts(graph.name, graph.sha256, graph.op_names, times)))
    start = time.process_time()
    costs = read_costs(data, graph)
    assert time.process_time() - start < 3  # 0.3 s where it was written; machines differ
    assert costs.time_ns["gpu"].tolist() == list(range(num_ops))
