"""Documents to nouns and back: graphs, clusters, placements, networkx graphs and the published schemas."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.layered import layered

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import roofline
from gnnplace.formats import documents
from gnnplace.formats.clusters import cluster_document, cluster_of, read_cluster
from gnnplace.formats.graphs import graph_document, graph_of, read_graph
from gnnplace.formats.placements import Provenance, placement_document, predicted, read_about, read_placement, write_placement
from gnnplace.frontends.published.networkx import from_networkx, to_networkx
from gnnplace.graph import CANONICAL_KINDS, CONTROL, PHASES, Categorical, ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.result import StepResult
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.replicas import replicas

pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # beartype does, while strategies draw

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("vectors-*.json"))
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
SIZES = st.integers(0, 2**50)
RATES = st.integers(1, 2**62)


def maybe(strategy):
    return st.none() | strategy


OUTPUTS = st.builds(
    Output, SIZES, shape=maybe(st.lists(st.integers(0, 2**40), max_size=3).map(tuple)), dtype=maybe(NAMES), is_result=st.booleans()
)


@st.composite
def graphs(draw):
    """Graphs of up to six ops with every field, edges from lower to higher ops, and aliases of inputs."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    outputs = [draw(st.lists(OUTPUTS, max_size=2)) for _ in names]
    pairs = [(src, k, dst) for dst in range(len(names)) for src in range(dst) for k in range(CONTROL, len(outputs[src]))]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=10)) if pairs else []
    for src, k, dst in edges:
        if k != CONTROL and outputs[dst] and draw(st.booleans()):
            first = outputs[dst][0]
            outputs[dst][0] = Output(first.bytes, first.shape, first.dtype, (src, k), first.is_result)
    kinds = st.lists(st.sampled_from(["cpu", "gpu", "tpu"]), min_size=1, unique=True).map(tuple)
    ops = [
        Op(
            name, draw(NAMES), tuple(produced), flops=draw(st.integers(0, 2**60)), bytes_accessed=draw(maybe(SIZES)),
            persistent_bytes=draw(SIZES), workspace_bytes=draw(SIZES), kernel=draw(st.booleans()),
            time_ns=draw(st.dictionaries(NAMES, SIZES, max_size=3)), allowed=draw(maybe(kinds)), colocation=draw(maybe(NAMES)),
            layer=draw(maybe(NAMES)), phase=draw(maybe(st.sampled_from(PHASES))), block=draw(maybe(st.integers(0, 2**31 - 1))),
            time_step=draw(maybe(st.integers(0, 9))), canonical_kind=draw(maybe(st.sampled_from(CANONICAL_KINDS))),
        )
        for name, produced in zip(names, outputs, strict=True)
    ]  # fmt: skip
    return ComputationGraph.from_ops(draw(NAMES), ops, edges)


@st.composite
def clusters(draw):
    """Clusters of up to four devices and any links between them."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    rates = RATES | st.dictionaries(NAMES, RATES, min_size=1, max_size=2)
    times = st.integers(0, 2**50)
    kinds = st.sampled_from(["cpu", "gpu"])
    devices = tuple(draw(st.builds(Device, st.just(name), kinds, SIZES, rates, RATES, times, times, st.integers(1, 9))) for name in names)
    pairs = [(src, dst) for src in names for dst in names if src != dst]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    channels = maybe(NAMES.filter(lambda name: name not in names))
    links = tuple(Link(src, dst, draw(RATES), draw(times), draw(times), draw(channels | st.just(src))) for src, dst in chosen)
    return Cluster(draw(NAMES), devices, links)


def text(document):
    return json.dumps(document).encode()


def survives_json_and_networkx(graph):
    assert read_graph(text(graph_document(graph))).sha256 == graph.sha256
    assert from_networkx(to_networkx(graph)).sha256 == graph.sha256


test_a_graph_survives_json_and_networkx = settings(max_examples=10, deadline=None)(given(graphs())(survives_json_and_networkx))
test_many_graphs_survive = pytest.mark.slow(settings(max_examples=100, deadline=None)(given(graphs())(survives_json_and_networkx)))


@settings(max_examples=25, deadline=None)
@given(clusters())
def test_a_cluster_survives_json(cluster):
    again = read_cluster(text(cluster_document(cluster)))
    assert again == cluster and again.sha256 == cluster.sha256


def test_the_fields_of_a_document_reach_the_graph():
    document = {
        "format": "gnnplace.graph", "version": 1, "name": "g",
        "ops": [
            {"name": "w", "kind": "Variable", "outputs": [{"bytes": 16, "shape": [2, 2], "dtype": "float32"}], "persistent_bytes": 16},
            {"name": "r", "kind": "Read", "kernel": False, "outputs": [{"bytes": 16, "alias_of": [0, 0], "is_result": True}],
             "time_ns": {"cpu": 5}, "allowed": ["cpu"], "phase": "update", "block": 2},
        ],
        "edges": [[0, 0, 1], [0, -1, 1], [0, 0, 1]],
    }  # fmt: skip
    graph = graph_of(document)
    assert graph.num_ops == 2 and graph.num_edges == 2 and graph.edge_output.tolist() == [-1, 0]
    assert graph.kernel.tolist() == [True, False] and graph.output_alias.tolist() == [-1, 0]
    assert graph.persistent_bytes.tolist() == [16, 0] and graph.bytes_accessed.tolist() == [-1, -1]
    assert graph.given_keys == ("cpu",) and graph.given_time_ns.tolist() == [[-1], [5]]
    assert (graph.allowed[1], graph.phase[1], graph.block[1], graph.block[0]) == ("cpu", "update", 2, -1)
    assert graph_document(graph)["ops"] == document["ops"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_documents_become_nouns_and_come_back(path):
    for vector in json.loads(path.read_text()):
        graph, cluster = read_graph(text(vector["graph"])), read_cluster(text(vector["cluster"]))
        placement = read_placement(text(vector["placement"]), graph, cluster)
        assert list(graph.op_names) == [op["name"] for op in vector["graph"]["ops"]]
        assert graph.output_bytes.tolist() == [output["bytes"] for op in vector["graph"]["ops"] for output in op["outputs"]]
        devices = [cluster.device_names[device] for device in placement.device]
        assert dict(zip(graph.op_names, devices, strict=True)) == vector["placement"]["device"]
        assert graph_of(graph_document(graph)).sha256 == graph.sha256
        assert cluster_of(cluster_document(cluster)) == cluster
        again = read_placement(text(placement_document(graph, cluster, placement)), graph, cluster)
        assert again.schedule == placement.schedule and np.array_equal(again.device, placement.device)
        assert (again.priority is None and placement.priority is None) or np.array_equal(again.priority, placement.priority)


def test_networkx_is_read_in_node_order_and_refused_at_its_place():
    graph = nx.MultiDiGraph(name="g")
    graph.add_node("b", name="b", kind="Add", outputs=[{"bytes": 4}])
    graph.add_node("a", name="a", kind="Add", outputs=[])
    graph.add_edge("b", "a", output=0)
    graph.add_edge("b", "a", output=-1)
    found = from_networkx(graph)
    assert found.op_names == ("b", "a") and found.edge_output.tolist() == [-1, 0]
    graph.add_edge("a", "b", output=-1)
    with pytest.raises(ValueError, match="cycle"):
        from_networkx(graph)
    graph.add_edge("b", "a")
    with pytest.raises(ValueError, match=r"edges\[2\]\[1\]: None: input should be a valid integer"):
        from_networkx(graph)


@pytest.fixture
def pair():
    ops = [Op("x", "Placeholder", (Output(8),)), Op("left", "MatMul")]
    graph = ComputationGraph.from_ops("two", ops, [(0, 0, 1)])
    devices = (Device("cpu:0", "cpu", 100, 10**9, 10**9), Device("gpu:0", "gpu", 100, 10**9, 10**9))
    return graph, Cluster("pair", devices, (Link("cpu:0", "gpu:0", 10),))


PLACEMENT = {"format": "gnnplace.placement", "version": 1, "device": {"x": "cpu:0", "left": "gpu:0"}}


def test_a_placement_is_read_by_name(pair):
    placement = read_placement(text(PLACEMENT | {"device": {"left": "gpu:0", "x": "cpu:0"}}), *pair)
    assert placement.device.tolist() == [0, 1] and placement.schedule == "critical-path" and placement.priority is None
    given = read_placement(text(PLACEMENT | {"schedule": "given", "priority": {"left": -3, "x": 2**63 - 1}}), *pair)
    assert given.priority is not None and given.priority.tolist() == [2**63 - 1, -3]
    assert placement.fusion is None and read_placement(text(PLACEMENT | {"fusion": None}), *pair).fusion is None
    fused = read_placement(text(PLACEMENT | {"fusion": [["left", "x"]]}), *pair)
    assert fused.fusion is not None and len(set(fused.fusion.tolist())) == 1
    assert placement_document(*pair, fused)["fusion"] == [["x", "left"]] and "fusion" not in placement_document(*pair, placement)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": {"x": "cpu:0"}}, "device: op 'left' has no entry (1 of 2 ops have none)"),
        ({"device": {"x": "cpu:0", "left": "gpu:0", "lefd": "gpu:0"}}, "device.lefd: 'lefd' is no op of 'two'; nearest is 'left'"),
        ({"device": {"x": "cpu:0", "left": "gpu:1"}}, "device.left: 'gpu:1' is no device; nearest is 'gpu:0'; choose from cpu:0, gpu:0"),
        ({"device": {"x": "cpu:0", "left": 1}}, "device.left: 1: input should be a valid string"),
        ({"schedule": "random"}, "schedule: 'random': input should be 'fifo', 'critical-path', 'depth', 'memory', 'given' or 'in-order'"),
        ({"schedule": "given"}, "priority: the schedule 'given' needs priorities"),
        ({"priority": {"x": 1, "left": 1}}, "priority: the schedule 'critical-path' takes no priorities"),
        ({"schedule": "given", "priority": {"x": 1}}, "priority: op 'left' has no entry"),
        ({"schedule": "given", "priority": {"x": 1, "left": 2**63}}, "priority.left: 9223372036854775808: input should be less than"),
        ({"fusion": {"x": 1}}, "fusion: a dict: input should be a valid list"),
        ({"fusion": [["x"]]}, "fusion[0]: a list: list should have at least 2 items"),
        ({"fusion": [["x", "lefd"]]}, "fusion[0][1]: 'lefd' is no op of 'two'; nearest is 'left'"),
        ({"fusion": [["x", "left"], ["left", "x"]]}, "fusion[1][0]: 'left' is fused with 'x' already"),
        ({"fusion": [["x", "x"]]}, "fusion[0][1]: 'x' is fused with 'x' already"),
        ({"graph": {"ops": 3}}, "graph.ops: 3 is not 2, that of 'two'; the placement is for another graph"),
        ({"graph": {"sha256": "0" * 64}}, "graph.sha256: " + "0" * 64 + " is not"),
        ({"cluster": {"sha256": "0" * 64}}, "cluster.sha256: " + "0" * 64 + " is not"),
        ({"cluster": {"sha256": "zz"}}, "cluster.sha256: 'zz': string should match pattern"),
        ({"predicted": {"step_time_ns": 1}}, "predicted.infeasible: is missing"),
        ({"devices": {}}, "devices: unknown key; nearest is 'device'"),
    ],
)  # fmt: skip
def test_a_bad_placement_is_refused_at_its_place(pair, change, message):
    with pytest.raises(ValueError) as caught:
        read_placement(text(PLACEMENT | change), *pair)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_module_of_replicas_has_the_device_of_each(pair):
    _, machine = pair
    step = replicas(layered(2), [1, 1])
    device = np.minimum(step.copies.replica, machine.num_devices - 1)
    device[step.op_names.index("w1@r1")] = 0
    document = placement_document(step, machine, Placement(device.astype(np.int32)))
    assert document["modules"] == {"layer.0": list(machine.device_names[:2])}  # layer.1 is split on replica 1
    assert (document["granularity"], read_placement(text(document), step, machine).device.tolist()) == ("op", device.tolist())


def test_a_placement_of_several_micro_batches_names_the_graph_of_one(pair):
    graph, machine = pair
    graph = replace(graph, phase=Categorical.of(["forward", "forward"]))
    step, one = micro_batches(graph, 2), Placement(np.zeros(2, dtype=np.int32))
    placement = Placement(np.array([0, 1, 1, 0], dtype=np.int32))
    document = placement_document(step, machine, placement)
    assert document["graph"] == {"name": "two", "sha256": graph.sha256, "ops": 2} and document["micro_batches"] == 2
    assert list(document["device"]) == ["x@0", "x@1", "left@0", "left@1"]
    assert read_placement(text(document), step, machine).device.tolist() == [0, 1, 1, 0]
    assert read_about(text(document)).parallelism == Parallelism(2)
    plain = placement_document(graph, machine, one)
    assert not {"micro_batches", "copies", "shared"} & plain.keys() and read_about(text(plain)).parallelism == Parallelism()
    for change, other, message in (
        ({}, graph, "micro_batches: 2 is not 1, that of the step of 'two'; the placement is for another step"),
        ({}, micro_batches(graph, 3), "micro_batches: 2 is not 3, that of the step of 'two'"),
        ({"copies": "free"}, step, "copies: 'free' is not 'together', that of the step of 'two'"),
        ({"shared": ["x"]}, step, "shared: ('x',) is not (), that of the step of 'two'"),
        ({"micro_batches": 0}, step, "micro_batches: 0: input should be greater than or equal to 1"),
        ({"micro_batches": True}, step, "micro_batches: True: input should be a valid integer"),
        ({"micro_batches": 10**9}, step, "micro_batches: 1000000000: input should be less than or equal to 10000000"),
        ({"copies": "apart"}, step, "copies: 'apart': input should be 'together', 'free'"),
        ({"shared": "x"}, step, "shared: 'x': input should be a valid list"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as caught:
            read_placement(text(document | change), other, machine)
        assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_written_placement_is_complete_and_read_again(pair, tmp_path):
    problem = roofline.problem(*pair)
    placement = Placement(np.array([0, 1], dtype=np.int32), "given", np.array([5, 4]))
    result = StepResult("given", 30, None, np.array([8, 8]), np.array([9, 8]), 8, 1)
    provenance = Provenance(tool="gnnplace 0.1.0", planner="test", seed=0, wall_ns=7)
    write_placement(tmp_path / "p.json", *pair, placement, predicted(problem.cluster, result, 17), provenance)
    document = json.loads((tmp_path / "p.json").read_text())
    assert document["predicted"] == {
        "step_time_ns": 30, "infeasible": None, "peak_memory_bytes": {"cpu:0": 8, "gpu:0": 8}, "busy_ns": {"cpu:0": 9, "gpu:0": 8},
        "transferred_bytes": 8, "transfers": 1, "bound_ns": 17, "bound": None,
        "room": 1 - 17 / 30, "load_balance": 8 / 9, "communication_share": None, "idle_ns": None,
    }  # fmt: skip
    assert document["graph"] == {"name": "two", "sha256": pair[0].sha256, "ops": 2}
    assert document["provenance"]["checkpoint_sha256"] is None
    again = read_placement(tmp_path / "p.json", *pair)
    assert again.schedule == "given" and again.priority.tolist() == [5, 4] and again.device.tolist() == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_the_published_schemas_are_those_of_the_models():
    for path, expected in documents.schema_files().items():
        assert path.read_text() == expected, f"{path.name} is old: python -m gnnplace.formats.documents"


def test_the_schemas_require_what_the_formats_require():
    found = {path.stem: json.loads(content) for path, content in documents.schema_files().items()}
    assert set(found) == {"graph", "cluster", "placement", "costs"}
    assert found["graph"]["$defs"]["OpDocument"]["properties"]["phase"]["anyOf"][0]["enum"] == list(PHASES)
    assert found["placement"]["required"] == ["format", "version", "device"]
    assert found["costs"]["required"] == ["format", "version", "time_ns"]
    assert found["graph"]["required"] == ["format", "version", "name", "ops", "edges"]
    assert found["graph"]["$defs"]["OpDocument"]["required"] == ["name", "kind", "outputs"]
    assert found["cluster"]["$defs"]["LinkDocument"]["required"] == ["src", "dst", "bandwidth_bytes_per_s"]
