"""Valid documents of every JSON format, and all that may be wrong with one: text that is no JSON, and values that are of another type."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

GRAPH: dict[str, Any] = {
    "format": "gnnplace.graph", "version": 1, "name": "fork",
    "ops": [
        {
            "name": "x", "kind": "Read", "outputs": [{"bytes": 1000, "shape": [250], "dtype": "float32", "is_result": False}],
            "time_ns": {"cpu": 10, "gpu": 10}, "phase": "forward", "layer": "net.a", "canonical_kind": "elementwise",
        },
        {
            "name": "left", "kind": "MatMul", "outputs": [{"bytes": 1000, "alias_of": [0, 0]}], "flops": 5, "bytes_accessed": 7,
            "persistent_bytes": 50, "workspace_bytes": 3, "kernel": True, "allowed": ["cpu", "gpu"], "colocation": "c", "block": 0,
            "time_step": 0,
        },
        {"name": "right", "kind": "MatMul", "outputs": [], "colocation": "c", "flops": 7},
    ],
    "edges": [[0, 0, 1], [0, -1, 2]],
}  # fmt: skip
CLUSTER: dict[str, Any] = {
    "format": "gnnplace.cluster", "version": 1, "name": "pair",
    "devices": [
        {
            "name": f"{kind}:0", "kind": kind, "memory_bytes": 50000, "flops_per_s": {"float32": 10**9}, "memory_bytes_per_s": 10**9,
            "launch_ns": 1, "dispatch_ns": 1, "streams": 1, "memory": f"m{kind}", "contended_memory_bytes_per_s": 10**8,
            "received": "parts",
        }
        for kind in ("cpu", "gpu")
    ],
    "links": [
        {"src": a, "dst": b, "bandwidth_bytes_per_s": 10**12, "overhead_ns": 4, "latency_ns": 3, "channel": "c", "receive_channel": "r"}
        for a, b in (("cpu:0", "gpu:0"), ("gpu:0", "cpu:0"))
    ],
}  # fmt: skip
PLACEMENT: dict[str, Any] = {
    "format": "gnnplace.placement", "version": 1, "graph": {"name": "fork", "ops": 3}, "cluster": {"name": "pair"},
    "device": {"x": "cpu:0", "left": "cpu:0", "right": "cpu:0"}, "schedule": "given", "priority": {"x": 3, "left": 2, "right": 1},
}  # fmt: skip
COSTS: dict[str, Any] = {
    "format": "gnnplace.costs", "version": 1, "graph": {"name": "fork", "ops": 3},
    "time_ns": {"cpu": {"x": 1, "left": 2, "right": 3}, "gpu": {"x": 1, "left": 2, "right": 3}},
    "links": [{"src": "cpu:0", "dst": "gpu:0", "samples": [[10, 5, 6], [1000, 50, 60]]}],
    "provenance": {"tool": "t", "hardware": "h", "date": "2026-01-01", "steps": 5},
}  # fmt: skip
MSR: dict[str, Any] = {
    "maxSizePerFPGA": 10.0, "maxFPGAs": 2, "maxCPUs": 1,
    "nodes": [
        {
            "id": k, "name": f"n{k}", "supportedOnFpga": True, "cpuLatency": 1.0, "fpgaLatency": 0.5, "isBackwardNode": False,
            "colorClass": 1, "size": 4.0,
        }
        for k in range(2)
    ],
    "edges": [{"sourceId": 0, "destId": 1, "size": 8.0, "cost": 0.1}],
}  # fmt: skip
EVIL = "\x1b[2J\u202e\r\nname"
WRONG: Mapping[type, dict[str, Any]] = {
    int: {"text": "1", "a fraction": 1.5, "true": True, "a list": [], "a map": {}, "2^70": 2**70, "below all": -(2**64)},
    float: {"text": "1", "a list": [], "a map": {}, "below all": -1e300},
    str: {"a number": 7, "a list": [], "a map": {}, "true": True},
    bool: {"text": "yes", "7": 7, "a list": []},
    list: {"text": "x", "a number": 7, "a map": {"a": 1}, "null": None},
    dict: {"text": "x", "a list of one": [1], "null": None},
}
OPTIONAL = ("range", "graph", "cluster", "provenance", "priority", "allowed", "shape", "alias_of", "colorClass")


def broken_texts(text: str) -> Iterator[tuple[str, bytes, str]]:
    """What is no document at all: a name, the bytes, and what is said of it."""
    data = text.encode()
    for share in range(1, 12):
        yield f"cut at {share}/12", data[: len(data) * share // 12], "line [0-9]+ column [0-9]+: not JSON"
    middle = text.index(":") + 1
    inserted = {
        "NaN": ("NaN,", "NaN: a number has to be finite|not JSON"), "Infinity": ("[Infinity],", "finite|not JSON"),
        "5,000 digits": ("9" * 5000 + ",", "integer|not JSON"), "a lone surrogate": ('"\\ud800",', "surrogate|not JSON"),
        "brackets": ("[" * 100_000, "nested too deeply"), "maps": ('{"a":' * 100_000, "nested too deeply"),
        "a comment": ("/* */", "not JSON"), "a control character": ('"\x01"', "not JSON"), "single quotes": ("'x'", "not JSON"),
        "code": ("__import__('os').system('touch executed')", "not JSON"),
    }  # fmt: skip
    for name, (what, words) in inserted.items():
        yield name, (text[:middle] + what + text[middle:]).encode(), words
    yield "nothing", b"", "not JSON"
    yield "null", b"null", "an object is due|is none of"
    yield "a list", b"[]", "an object is due|is none of"
    yield "a text", b'"x"', "an object is due|is none of"
    yield "garbage after it", data + b"x", "not JSON"
    yield "two of it", data + data, "not JSON"
    yield "bytes that are no text", data[:middle] + b"\xff\xfe" + data[middle:], "byte [0-9]+: not UTF-8"
    yield "UTF-16", text.encode("utf-16"), "not UTF-8"
    yield "a pickle", b"cos\nsystem\n(S'touch executed'\ntR.", "not JSON"
    yield "zeros", bytes(10_000), "not JSON"
    yield "a repeated key", b'{"format": 1, "format": 2}', "a key may stand once"
    yield "a long text", json.dumps({"format": "x" * 10**6}).encode(), "is not known|is none of|is missing"
    yield "a long key", json.dumps({"x" * 10**6: 1}).encode(), "is missing|is none of"


def paths(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place of a document and its value, of entries that are alike the first."""
    yield where, value
    if isinstance(value, dict):
        for key, part in value.items():
            yield from paths(part, (*where, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from paths(part, (*where, index))


def changed(document: Any, where: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a place."""
    found = copy.deepcopy(document)
    within = found
    for part in where[:-1]:
        within = within[part]
    within[where[-1]] = value
    return found


def wrong_values(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Documents with one value of another type, each at another place: a name, the document, and what is said: the place."""
    seen = set()
    for where, value in paths(document):
        key = tuple(part if isinstance(part, str) else "#" for part in where)
        if not where or key in seen:
            continue
        seen.add(key)
        for name, wrong in WRONG.get(type(value), {}).items():
            if wrong is None and where[-1] in OPTIONAL:
                continue
            yield f"{_place(where)} is {name}", changed(document, where, wrong), re.escape(_last(where))
    yield "an unknown key", document | {EVIL: 1}, "unknown key"


def _place(where: tuple[Any, ...]) -> str:
    return ".".join(map(str, where))


def _last(where: tuple[Any, ...]) -> str:
    """What names the place at least: the last key that is no index."""
    return next(part for part in reversed(where) if isinstance(part, str))
