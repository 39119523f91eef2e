"""Hostile graphs, clusters, placements, measured costs and profiles, each read by a command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.hostile.command_case import HostileFile
from tests.hostile.documents import CLUSTER, COSTS, EVIL, GRAPH, MSR, PLACEMENT, broken_texts, changed, wrong_values

PLACED = ("simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json")
PROFILE = (
    "node1 -- Conv2d(3, 64) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=4096.0, parameter_size=7168.000\n"
    "node2 -- ReLU -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=[1.0; 2.0], parameter_size=0.000\n"
    "\tnode1 -- node2\n"
)
DEFAULTS: Mapping[str, Any] = {"graph.json": GRAPH, "cluster.json": CLUSTER, "placement.json": PLACEMENT, "costs.json": COSTS}
READERS: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "graph": ("graph.json", GRAPH, ("graphs", "show", "./graph.json")),
    "cluster": ("cluster.json", CLUSTER, ("clusters", "show", "./cluster.json")),
    "placement": ("placement.json", PLACEMENT, PLACED),
    "costs": ("costs.json", COSTS, (*PLACED, "--costs", "costs.json")),
    "profile": ("msr.json", MSR, ("graphs", "show", "msr.json", "--format", "msr-fiddle", "--cluster", "k40-2")),
}
MEANINGS: Mapping[str, Mapping[str, tuple[tuple[Any, ...], Any, str]]] = {
    "graph": {
        "a cycle": (("edges",), [[0, 0, 1], [1, 0, 0]], "cycle|acyclic"),
        "an edge to itself": (("edges",), [[0, 0, 1], [1, 0, 1]], "cycle|itself|alias"),
        "an edge to nowhere": (("edges",), [[0, 0, 9]], r"edges\[0\]: op 9"),
        "no ops": (("ops",), [], "ops"),
        "an output that is none": (("edges",), [[0, 7, 1]], r"edges\[0\]\[1\]: output 7"),
        "an edge of two": (("edges",), [[0, 1]], "edges"),
        "an alias of itself": (("ops", 1, "outputs", 0, "alias_of"), [1, 0], "alias"),
        "two of a name": (("ops", 1, "name"), "x", "x"),
        "an alias of nothing": (("ops", 1, "outputs", 0, "alias_of"), [5, 0], "alias_of"),
        "no name": (("ops", 0, "name"), "", "name"),
        "times that overflow": (("ops", 0, "time_ns"), {"cpu": 2**62}, "time_ns"),
        "no phase": (("ops", 0, "phase"), EVIL, "phase"),
        "bytes that overflow": (("ops", 0, "outputs", 0, "bytes"), 2**63 - 1, "bytes"),
        "an odd kind": (("ops", 1, "allowed"), ["a,b"], "allowed"),
        "a version from the future": (("version",), 2, "version: 2 is not known"),
        "another format": (("format",), EVIL, "format"),
        "a million dimensions": (("ops", 0, "outputs", 0, "shape"), [1] * 10**6, "shape"),
        "1e999": (("ops", 0, "flops"), 1e308, "flops"),
        "a name of a megabyte": (("ops", 0, "name"), "x" * 10**6, "name"),
        "a million devices": (("ops", 1, "allowed"), ["a"] * 10**6, "allowed"),
    },
    "cluster": {
        "no devices": (("devices",), [], "devices"),
        "two of a name": (("devices", 1, "name"), "cpu:0", "cpu:0"),
        "a link from nowhere": (("links", 0, "src"), "npu:0", "npu:0"),
        "a link of one device": (("links", 0, "dst"), "cpu:0", "cpu:0"),
        "a rate of 0": (("devices", 0, "flops_per_s"), 0, "flops_per_s"),
        "no bandwidth": (("links", 0, "bandwidth_bytes_per_s"), 0, "bandwidth"),
        "2,000 devices": (("devices",), [CLUSTER["devices"][0]] * 2000, "devices"),
        "no links": (("links",), [], "isolated"),
        "streams without end": (("devices", 0, "streams"), 10**9, "streams"),
        "no name": (("name",), "", "name"),
        "a latency that overflows": (("links", 0, "latency_ns"), 2**63 - 1, "latency_ns"),
        "an odd kind": (("devices", 0, "kind"), "a,b", "kind"),
        "two links of a pair": (("links",), [CLUSTER["links"][0]] * 2, "link"),
        "an evil name": (("links", 0, "src"), EVIL, "src|links"),
        "a million rates": (("devices", 0, "flops_per_s"), {str(k): -1 for k in range(10**5)}, "flops_per_s"),
    },
    "placement": {
        "an unknown device": (("device", "x"), EVIL, "device"),
        "an unknown op": (("device",), {EVIL: "cpu:0"}, "no entry"),
        "a missing op": (("device",), {"x": "cpu:0"}, "no entry"),
        "another graph": (("graph", "sha256"), "0" * 64, r"graph\.sha256"),
        "another number of ops": (("graph", "ops"), 5, r"graph\.ops"),
        "a checksum that is none": (("graph", "sha256"), "x", "sha256"),
        "an odd schedule": (("schedule",), EVIL, "schedule"),
        "no priorities": (("priority",), {}, "priority"),
        "a fusion of one": (("fusion",), [["x"]], "fusion"),
        "a fusion of strangers": (("fusion",), [["x", EVIL]], "fusion"),
        "a fusion twice": (("fusion",), [["x", "left"], ["x", "right"]], "fusion"),
        "odd modules": (("modules",), {"x": 7}, "modules"),
        "priorities that overflow": (("priority", "x"), 2**63, "priority"),
        "an odd granularity": (("granularity",), "atoms", "granularity"),
    },
    "costs": {
        "a missing op": (("time_ns", "cpu"), {"x": 1}, "no entry"),
        "an unknown op": (("time_ns", "cpu", EVIL), 1, "time_ns"),
        "no times": (("time_ns",), {}, "time_ns"),
        "no samples": (("links", 0, "samples"), [], "samples"),
        "no date": (("provenance", "date"), "x", "date"),
        "another graph": (("graph", "sha256"), "0" * 64, r"graph\.sha256"),
        "a time below 0": (("time_ns", "cpu", "x"), -1, "time_ns"),
        "a sample of two": (("links", 0, "samples"), [[1, 2]], "samples"),
        "steps of 0": (("provenance", "steps"), 0, "steps"),
        "a link twice": (("links",), COSTS["links"] * 2, "second entry"),
        "a time that overflows": (("time_ns", "cpu", "x"), 2**63, "time_ns"),
    },
    "profile": {
        "an edge to nowhere": (("edges", 0, "destId"), 9, "destId"),
        "two of an id": (("nodes", 1, "id"), 0, "unique"),
        "a latency below 0": (("nodes", 0, "cpuLatency"), -1.0, "cpuLatency"),
        "two of a name": (("nodes", 1, "name"), "n0", "unique"),
        "a latency that overflows": (("nodes", 0, "cpuLatency"), 1e300, "cpuLatency"),
        "an edge to itself": (("edges", 0, "destId"), 0, "cycle|itself"),
    },
}
PIPEDREAM = {
    "no node": ("x\n", "line 1: 'x': expected a node"),
    "a node twice": (PROFILE.partition("\n")[0] + "\n" + PROFILE, "not unique"),
    "an edge to nowhere": (PROFILE + "\tnode1 -- node9\n", "line 4: 'node9' is no node"),
    "an edge of one": (PROFILE + "\tnode1\n", "line 4"),
    "a cycle": (PROFILE + "\tnode2 -- node1\n", "cycle|acyclic"),
    "nothing": ("", "op"),
    "a time of NaN": (PROFILE.replace("1.000", "e"), "line 1"),
    "a time that overflows": (PROFILE.replace("1.000", "1e99", 1), "line 1: forward_compute_time"),
    "a time below 0": (PROFILE.replace("1.000", "-1"), "line 1"),
    "a line of 10 MB": ("x" * 10**7, "line 1"),
    "a size that overflows": (PROFILE.replace("4096.0", "1e30"), "line 1: activation_size"),
    "many sizes": (PROFILE.replace("[1.0; 2.0]", "[" + "; ".join(["1.0"] * 50_000) + "]"), "line 2"),
    "escapes": (EVIL, "line 1"),
    "many blanks": ("a -- " + " -- " * 20_000 + "\n", "line 1"),
    "dashes": ("-- " * 30_000, "line 1"),
    "zeros": ("\0" * 10_000, "line 1"),
}


def cases() -> Iterator[HostileFile]:
    """All of them."""
    for kind, (file, document, arguments) in READERS.items():
        others = {name: json.dumps(each).encode() for name, each in DEFAULTS.items() if name in arguments and name != file}
        yield HostileFile(kind, "the document as it is", arguments, others | {file: json.dumps(document).encode()}, statuses=frozenset({0}))
        for name, data, words in broken_texts(json.dumps(document)):
            yield HostileFile(kind, name, arguments, others | {file: data}, f"{file}: .*({words})")
        named = [*wrong_values(document), *((name, changed(document, *each[:2]), each[2]) for name, each in MEANINGS[kind].items())]
        for name, wrong, words in named:
            yield HostileFile(kind, name, arguments, others | {file: json.dumps(wrong).encode()}, words)
    for name, (text, words) in PIPEDREAM.items():
        for mode in ("training", "inference"):
            arguments = ("graphs", "show", "profile.txt", "--format", "pipedream", "--mode", mode)
            yield HostileFile("profile", f"{mode}: {name}", arguments, {"profile.txt": text.encode()}, words)
    yield HostileFile("profile", "no text", (*arguments,), {"profile.txt": b"\xff" * 100}, "not UTF-8")
