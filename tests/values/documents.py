"""Documents that have every numeric field of the four formats, and the values that each field gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.hostile.documents import changed, paths

POWERS = (31, 53, 63)
LIMITS = (50, 60, 62)  # the largest bytes and times, flops and memories, rates that documents may have are 2^k
VALUES = (0, 1, *(2**k + d for k in POWERS for d in (-1, 0, 1)), *(2**k for k in LIMITS))
DEVICES = ("cpu:0", "gpu:0", "gpu:1")
OPS = 12


def _op(number: int) -> dict[str, Any]:
    """Layers in a row of blocks: every third op has a variable, every other one gives its times."""
    op = {
        "name": f"op{number}", "kind": "MatMul", "flops": 3000 + number, "bytes_accessed": 500, "persistent_bytes": 700 * (number % 3 == 0),
        "workspace_bytes": 40, "layer": f"net.{number // 3}", "block": number // 3, "time_step": number % 3, "phase": "forward",
        "canonical_kind": "matmul" if number % 2 else "activation",
        "outputs": [{"bytes": 600, "shape": [15, 10], "dtype": "float32"}, {"bytes": 80, "dtype": "float16", "is_result": number == 11}],
    }  # fmt: skip
    if number % 2:
        op["time_ns"] = {"cpu": 9000, "gpu": 4000 + number, "gpu:1": 5000}
    return op


GRAPH: dict[str, Any] = {
    "format": "gnnplace.graph", "version": 1, "name": "net", "ops": [_op(number) for number in range(OPS)],
    "edges": [[0, 0, 1], [0, 0, 2], [1, 0, 3], [2, 1, 3], [3, 0, 4], [3, -1, 5], [4, 0, 6], [5, 0, 7], [6, 0, 8], [7, 1, 8],
              [8, 0, 9], [8, 0, 10], [9, 0, 11], [10, 1, 11]],
}  # fmt: skip
GRAPH["ops"][2]["outputs"][0]["alias_of"] = [0, 0]
GRAPH["ops"][4]["kernel"] = False
CLUSTER: dict[str, Any] = {
    "format": "gnnplace.cluster", "version": 1, "name": "three",
    "devices": [
        {
            "name": name, "kind": name.partition(":")[0], "memory_bytes": 5000, "memory_bytes_per_s": 10**9, "launch_ns": 30,
            "dispatch_ns": 5, "flops_per_s": {"float32": 10**9, "float16": 2 * 10**9} if number else 3 * 10**8, "streams": 1,
            "memory": f"m{number // 2}", "contended_memory_bytes_per_s": 5 * 10**8, "received": "parts",
        }
        for number, name in enumerate(DEVICES)
    ],
    "links": [
        {"src": a, "dst": b, "bandwidth_bytes_per_s": 2 * 10**9, "overhead_ns": 20, "latency_ns": 50}
        | ({"channel": "bus", "receive_channel": "inbox"} if b == "gpu:1" else {})
        for a in DEVICES for b in DEVICES if a != b
    ],
}  # fmt: skip
PLACEMENT: dict[str, Any] = {
    "format": "gnnplace.placement", "version": 1, "graph": {"name": "net", "ops": OPS}, "cluster": {"name": "three"},
    "device": {f"op{number}": DEVICES[min(2, number // 3)] for number in range(OPS)}, "schedule": "given",
    "priority": {f"op{number}": OPS - number for number in range(OPS)}, "granularity": "op",
    "predicted": {
        "step_time_ns": 70000, "infeasible": None, "peak_memory_bytes": dict.fromkeys(DEVICES, 2000),
        "busy_ns": dict.fromkeys(DEVICES, 9000), "transferred_bytes": 1200, "transfers": 2, "bound_ns": 30000, "bound": "load",
        "room": 0.5, "load_balance": 0.9, "communication_share": 0.1, "idle_ns": dict.fromkeys(DEVICES, 100),
    },
    "provenance": {"tool": "t", "planner": "heft", "encoder": None, "checkpoint_sha256": None, "seed": 0, "wall_ns": 1000},
}  # fmt: skip
COSTS: dict[str, Any] = {
    "format": "gnnplace.costs", "version": 1, "graph": {"name": "net", "ops": OPS},
    "time_ns": {kind: {f"op{number}": 2000 + 10 * number for number in range(OPS)} for kind in ("cpu", "gpu")},
    "links": [{"src": "gpu", "dst": "gpu", "samples": [[10, 500, 600], [100_000, 40_000, 41_000], [200_000, 80_000, 81_000]]}],
    "provenance": {"tool": "t", "hardware": "h", "date": "2026-01-01", "steps": 5},
}  # fmt: skip
NAMES = {*DEVICES, *PLACEMENT["device"]}
DOCUMENTS = {"graph": GRAPH, "cluster": CLUSTER, "placement": PLACEMENT, "costs": COSTS}


class Changed(NamedTuple):
    """A problem's documents, one of which (`kind`) has a `value` at a place, or at all places like it."""

    kind: str
    name: str
    value: int
    places: tuple[tuple[Any, ...], ...]

    @property
    def documents(self) -> dict[str, dict[str, Any]]:
        made = DOCUMENTS[self.kind]
        for where in self.places:
            made = changed(made, where, self.value)
        return DOCUMENTS | {self.kind: made}

    def files(self) -> dict[str, bytes]:
        return {f"{kind}.json": json.dumps(document).encode() for kind, document in self.documents.items()}


def all_changed() -> Iterator[Changed]:
    """Every numeric field of every document at every value: one by itself, and all of its kind."""
    for kind, document in DOCUMENTS.items():
        for field, places in _fields(document).items():
            for value in VALUES:
                for words, chosen in (("one", places[:1]), ("every", places)):
                    if words == "one" or len(places) > 1:
                        yield Changed(kind, f"{words} {field} is {value}", value, tuple(chosen))


def _fields(document: dict[str, Any]) -> dict[str, list[tuple[Any, ...]]]:
    """The places of whole numbers, by field."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for where, value in paths(document):
        if type(value) is int:
            named = [part for part in where if isinstance(part, str) and part not in NAMES]
            position = [str(where[-1])] if isinstance(where[-1], int) else []
            found.setdefault(".".join(named + position), []).append(where)
    return found
