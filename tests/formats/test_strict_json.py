"""Every rule of the strict JSON layer and of the three formats, one malformed document each, with its exact place."""

import json

import pytest

from gnnplace.corpus import clusters
from gnnplace.formats import strict_json
from gnnplace.formats.clusters import cluster_document, cluster_of, read_cluster
from gnnplace.formats.graphs import MAX_DOCUMENT_BYTES, GraphDocument, read_graph

GRAPH = {
    "format": "gnnplace.graph", "version": 1, "name": "two-branch",
    "ops": [
        {"name": "x", "kind": "Placeholder", "outputs": [{"shape": [64, 256], "dtype": "float32", "bytes": 65536}]},
        {"name": "left", "kind": "MatMul", "flops": 8388608, "bytes_accessed": 393216,
         "outputs": [{"shape": [64, 256], "dtype": "float32", "bytes": 65536, "is_result": True}],
         "persistent_bytes": 262144, "workspace_bytes": 0, "time_ns": {"cpu": 90000, "gpu": 7000},
         "allowed": ["cpu", "gpu"], "colocation": "w_left", "layer": "branch/left"},
    ],
    "edges": [[0, 0, 1]],
}  # fmt: skip
CLUSTER = {
    "format": "gnnplace.cluster", "version": 1, "name": "pair",
    "devices": [
        {"name": "cpu:0", "kind": "cpu", "memory_bytes": 1000, "flops_per_s": 1e12, "memory_bytes_per_s": 60000000000.0},
        {"name": "gpu:0", "kind": "gpu", "memory_bytes": 1000, "flops_per_s": {"float32": 2e12}, "memory_bytes_per_s": 10},
    ],
    "links": [{"src": "cpu:0", "dst": "gpu:0", "bandwidth_bytes_per_s": 10}],
}  # fmt: skip


def with_value(document, path, value):
    """A copy of the document with one value replaced, added, or removed (value `...`)."""
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    elif isinstance(inner, list) and path[-1] == len(inner):
        inner.append(value)
    else:
        inner[path[-1]] = value
    return json.dumps(copy).encode()


def refused(read, data):
    with pytest.raises(ValueError) as caught:
        read(data)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1000
    return message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("ops", 1, "outputs", 0, "bytes"), -5, "ops[1].outputs[0].bytes: -5: input should be greater than or equal to 0"),
        (("ops", 1, "outputs", 0, "bytes"), 2**51, "ops[1].outputs[0].bytes: 2251799813685248: input should be less than or equal to"),
        (("ops", 1, "outputs", 0, "bytes"), True, "ops[1].outputs[0].bytes: True: input should be a valid integer"),
        (("ops", 1, "outputs", 0, "bytes"), 1.5, "ops[1].outputs[0].bytes: 1.5: input should be a valid integer"),
        (("ops", 1, "outputs", 0, "bytes"), 1e3, "ops[1].outputs[0].bytes: 1000.0: input should be a valid integer"),
        (("ops", 1, "outputs", 0, "bytes"), "12", "ops[1].outputs[0].bytes: '12': input should be a valid integer"),
        (("ops", 1, "outputs", 0, "bytes"), float("nan"), "ops[1].outputs[0].bytes: NaN: a number has to be finite"),
        (("ops", 1, "flops"), float("-inf"), "ops[1].flops: -Infinity: a number has to be finite"),
        (("ops", 1, "flops"), 2**70, "ops[1].flops: 1180591620717411303424: input should be less than"),
        (("ops", 1, "outputs", 0, "shape"), [64, -1], "ops[1].outputs[0].shape[1]: -1: input should be greater than or equal to 0"),
        (("ops", 1, "outputs", 0, "shape"), [1] * 300, "ops[1].outputs[0].shape: a list: list should have at most 256 items"),
        (("ops", 1, "outputs", 0, "bytes"), ..., "ops[1].outputs[0].bytes: is missing"),
        (("ops", 1, "kind"), ..., "ops[1].kind: is missing"),
        (("ops", 0, "outputs"), ..., "ops[0].outputs: is missing"),
        (("ops", 1, "flop"), 1, "ops[1].flop: unknown key; nearest is 'flops'"),
        (("ops", 1, "phase"), "backward", "ops[1].phase: 'backward' is none of forward, backward_data"),
        (("ops", 1, "canonical_kind"), "MatMul", "ops[1].canonical_kind: 'MatMul' is none of matmul, batch_matmul"),
        (("ops", 1, "allowed"), [], "ops[1].allowed: a list: list should have at least 1 item"),
        (("ops", 1, "allowed"), ["cpu,gpu"], "ops[1].allowed[0]: 'cpu,gpu': string should match pattern"),
        (("ops", 1, "time_ns", "gpu:0"), -1, "ops[1].time_ns['gpu:0']: -1: input should be greater than or equal to 0"),
        (("ops", 1, "block"), -1, "ops[1].block: -1: input should be greater than or equal to 0"),
        (("ops", 1, "kernel"), 0, "ops[1].kernel: 0: input should be a valid boolean"),
        (("ops", 1, "name"), "", "ops[1].name: '': string should have at least 1 character"),
        (("ops", 1, "name"), "x", "ops[1].name: 'x' is not unique"),
        (("ops", 1, "name"), "a\ud800", "ops[1].name: 'a\\ud800': a lone surrogate is not Unicode text"),
        (("ops", 1, "outputs", 0, "alias_of"), [0, 1], "ops[1].outputs[0].alias_of: [0, 1] is no output of the graph"),
        (("ops", 1, "outputs", 0, "alias_of"), [0], "ops[1].outputs[0].alias_of[1]: is missing"),
        (("ops", 0, "outputs", 0, "alias_of"), [1, 0], "ops[0].outputs[0].alias_of: [1, 0] is not a data input of the op"),
        (("ops",), [], "ops: a list: list should have at least 1 item"),
        (("ops",), {}, "ops: a dict: input should be a valid list"),
        (("edges", 0), [0, 0, 2], "edges[0]: op 2 does not exist; there are 2 ops"),
        (("edges", 0), [0, 1, 1], "edges[0][1]: output 1 does not exist; op 0 has 1 outputs"),
        (("edges", 0), [0, -2, 1], "edges[0][1]: -2: input should be greater than or equal to -1"),
        (("edges", 0), [0, 1], "edges[0][2]: is missing"),
        (("edges", 0), [0, 0, 1, 1], "edges[0]: a list: tuple should have at most 3 items"),
        (("edges", 0), [0, 0, True], "edges[0][2]: True: input should be a valid integer"),
        (("edges", 1), [1, 0, 0], "ops[0] ('x'): lies on or behind a cycle"),
        (("edges", 1), [1, -1, 1], "ops[1] ('left'): lies on or behind a cycle"),
        (("edges",), ..., "edges: is missing"),
        (("format",), "gnnplace.cluster", "format: 'gnnplace.cluster' is not known; this reader knows 'gnnplace.graph'"),
        (("format",), ..., "format: is missing; 'gnnplace.graph' is due"),
        (("version",), 2, "version: 2 is not known; this reader knows 1"),
        (("version",), True, "version: True is not known; this reader knows 1"),
        (("version",), "1", "version: '1' is not known; this reader knows 1"),
        (("comment",), "hello", "comment: unknown key"),
    ],
)  # fmt: skip
def test_a_malformed_graph_is_refused_at_its_place(path, value, message):
    assert refused(read_graph, with_value(GRAPH, path, value)).startswith(message)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("devices", 0, "memory_bytes"), -1, "devices[0].memory_bytes: -1: input should be greater than or equal to 0"),
        (("devices", 0, "memory_bytes"), 1e3, "devices[0].memory_bytes: 1000.0: input should be a valid integer"),
        (("devices", 0, "memory_bytes"), ..., "devices[0].memory_bytes: is missing"),
        (("devices", 0, "flops_per_s"), 1.5, "devices[0].flops_per_s: 1.5: input should be a valid integer"),
        (("devices", 0, "flops_per_s"), 0, "devices[0].flops_per_s: 0: input should be greater than or equal to 1"),
        (("devices", 0, "flops_per_s"), True, "devices[0].flops_per_s: True: input should be a valid integer"),
        (("devices", 0, "flops_per_s"), 1e300, "devices[0].flops_per_s: 1000000"),
        (("devices", 1, "flops_per_s"), {}, "devices[1].flops_per_s: a dict: dictionary should have at least 1 item"),
        (("devices", 1, "flops_per_s", "float16"), -3, "devices[1].flops_per_s.float16: -3: input should be greater than"),
        (("devices", 0, "memory_bytes_per_s"), ..., "devices[0].memory_bytes_per_s: is missing"),
        (("devices", 0, "streams"), 0, "devices[0].streams: 0: input should be greater than or equal to 1"),
        (("devices", 0, "name"), "gpu:0", "devices[1].name: 'gpu:0' is not unique"),
        (("devices", 0, "kind"), "a,b", "devices[0].kind: 'a,b': string should match pattern"),
        (("devices",), [], "devices: a list: list should have at least 1 item"),
        (("links", 0, "src"), "gpu:7", "links[0]: 'gpu:7' is not a device; devices are cpu:0, gpu:0"),
        (("links", 0, "src"), "gpu:0", "links[0]: a link from 'gpu:0' to itself"),
        (("links", 0, "channel"), "gpu:0", "links[0].channel: 'gpu:0' is the name of a device"),
        (("links", 0, "latency"), 3, "links[0].latency: unknown key; nearest is 'latency_ns'"),
        (("links", 0, "latency_ns"), -1, "links[0].latency_ns: -1: input should be greater than or equal to 0"),
        (("links", 0, "bandwidth_bytes_per_s"), 0, "links[0].bandwidth_bytes_per_s: 0: input should be greater than"),
        (("links", 1), CLUSTER["links"][0], "links[1]"),
    ],
)  # fmt: skip
def test_a_malformed_cluster_is_refused_at_its_place(path, value, message):
    assert refused(read_cluster, with_value(CLUSTER, path, value)).startswith(message)


def test_a_cluster_has_at_most_1024_devices():
    device = CLUSTER["devices"][0]
    many = [device | {"name": f"cpu:{index}"} for index in range(1025)]
    assert refused(read_cluster, with_value(CLUSTER, ("devices",), many)).startswith("devices: a list: list should have at most 1024 items")


def test_rates_may_be_written_as_integral_floats():
    cluster = read_cluster(json.dumps(CLUSTER).encode())
    assert cluster.devices[0].flops_per_s == 10**12 and isinstance(cluster.devices[0].flops_per_s, int)
    assert cluster.devices[0].memory_bytes_per_s == 60 * 10**9
    assert cluster.devices[1].flops_per_s == {"float32": 2 * 10**12}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1 column 1: not JSON: Expecting value"),
        (b'{"format": ', "line 1 column 12: not JSON: Expecting value"),
        (b"[1, 2]", "document: a list: an object is due"),
        (b"null", "document: None: an object is due"),
        (b"\xff\xfe{}", "byte 0: not UTF-8"),
        (b'{"format": "gnnplace.graph", "format": "gnnplace.graph"}', "format: 'format': a key may stand once in an object"),
        (b'{"ops": [{"name": "a"}, {"name": "b", "name": "c"}]}', "ops[1].name: 'name': a key may stand once in an object"),
        (b'{"ops": [{"time_ns": {"gpu:0": 1, "gpu:0": 2}}]}', "ops[0].time_ns['gpu:0']: 'gpu:0': a key may stand once"),
        (b'{"version": ' + b"9" * 5000 + b"}", "version: '99999"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "document: nested too deeply"),
        (b'{"a": ' + b"[" * 900 + b"NaN" + b"]" * 900 + b"}", "document: nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_not_strict_json_is_refused(data, message):
    assert refused(read_graph, data).startswith(message)


def test_a_long_document_is_refused_unread(tmp_path):
    with pytest.raises(ValueError, match="longer than the 10 bytes"):
        strict_json.parse(b" " * 11, GraphDocument, 10)
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)  # takes no room on the disk
    assert refused(read_graph, path) == f"{path}: longer than the {MAX_DOCUMENT_BYTES} bytes that this kind of document may have"


def test_the_error_of_a_file_begins_with_its_path(tmp_path):
    path = tmp_path / "g.json"
    path.write_bytes(with_value(GRAPH, ("version",), 3))
    assert refused(read_graph, path) == f"{path}: version: 3 is not known; this reader knows 1"
    with pytest.raises(FileNotFoundError):
        read_graph(tmp_path / "none.json")


def test_many_errors_are_not_collected():
    document = GRAPH | {"edges": [[0, 0]] * 200_000}
    assert refused(read_graph, json.dumps(document).encode()).startswith("edges[0][2]: is missing")


def test_an_unknown_preset_names_those_that_there_are():
    with pytest.raises(
        ValueError,
        match=r"'k40' is no cluster preset .*nearest is 'k40-[248]'; choose from a100-4, cpu-2, flex170-1, h100-8, .*written as '2x rtx",
    ):
        clusters.cluster("k40")


def test_all_that_is_wrong_with_a_cluster_is_told_at_once():
    """What is wrong with fields together with what is wrong between them, and without any of the former."""
    document = json.loads(json.dumps(CLUSTER))
    document["devices"][0]["memory_bytes"], document["links"][0]["dst"] = -1, "gpu:7"
    document["links"].append({"src": "gpu:8", "dst": "cpu:0"})
    assert refused(read_cluster, json.dumps(document).encode()) == (
        "devices[0].memory_bytes: -1: input should be greater than or equal to 0; links[1].bandwidth_bytes_per_s: is missing; "
        "links[0]: 'gpu:7' is not a device; devices are cpu:0, gpu:0; links[1]: 'gpu:8' is not a device; devices are cpu:0, gpu:0"
    )
    document["devices"][0]["memory_bytes"], document["links"][1]["bandwidth_bytes_per_s"] = 1, 1
    document["devices"][1]["contended_memory_bytes_per_s"] = 11
    assert refused(read_cluster, json.dumps(document).encode()) == (
        "devices[1].contended_memory_bytes_per_s: 11 is not between 1 and 10; "
        "links[0]: 'gpu:7' is not a device; devices are cpu:0, gpu:0; links[1]: 'gpu:8' is not a device; devices are cpu:0, gpu:0"
    )


def test_of_many_complaints_the_first_are_told_and_the_others_counted():
    many = [{"src": "cpu:0", "dst": "gpu:0", "bandwidth_bytes_per_s": 0}] * 1000
    assert refused(read_cluster, with_value(CLUSTER, ("links",), many)).endswith("; and 990 more")


@pytest.mark.parametrize("wrong", [3, None, [], [3], [{}], [{"name": 3}], {"name": "a"}])
def test_what_is_no_list_of_devices_and_links_is_told_as_such(wrong):
    assert refused(read_cluster, with_value(with_value_of(CLUSTER, "links", wrong), ("devices",), wrong)).startswith(("devices", "links"))


def with_value_of(document, key, value):
    return document | {key: value}


def test_devices_without_links_have_to_be_meant():
    alone = with_value(CLUSTER, ("links",), [])
    assert refused(read_cluster, alone) == 'links: none leads from or to cpu:0, gpu:0; if that is meant, add "isolated": true'
    meant = read_cluster(with_value(CLUSTER | {"links": []}, ("isolated",), True))
    assert meant.unlinked == ("cpu:0", "gpu:0") and cluster_document(meant)["isolated"] and cluster_of(cluster_document(meant)) == meant
    one = read_cluster(with_value(CLUSTER | {"links": []}, ("devices",), CLUSTER["devices"][:1]))
    assert one.unlinked == () and "isolated" not in cluster_document(one)
    third = [*CLUSTER["devices"], CLUSTER["devices"][1] | {"name": "gpu:1"}]
    assert "none leads from or to gpu:1;" in refused(read_cluster, with_value(CLUSTER, ("devices",), third))
