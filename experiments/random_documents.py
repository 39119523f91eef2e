"""Random documents of graphs and clusters with every feature of the execution model.

Times and sizes come from few small values, so that ties occur everywhere; memories are small, so that some overflow.
"""

from __future__ import annotations

from random import Random
from typing import Any

KINDS = ("cpu", "gpu", "npu")


def receive_apart(random: Random, cluster: dict[str, Any]) -> None:
    """Let some devices keep a buffer for each part that they receive, or for each output (`received` of a device)."""
    for fields in cluster["devices"]:
        fields |= random.choice([{}, {"received": "parts"}, {"received": "outputs"}])


def random_graph(random: Random, num_ops: int, device_names: list[str]) -> dict[str, Any]:
    """A graph whose document lists ops in another order than the topological one, mostly."""
    order = list(range(num_ops))
    if random.random() < 0.7:
        random.shuffle(order)
    ops: list[dict[str, Any]] = [{} for _ in range(num_ops)]
    edges: list[list[int]] = []
    density = random.choice([0.1, 0.3, 0.6])
    given, modelled = random.choice([(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
    for position, op in enumerate(order):
        inputs = []
        for source in order[:position]:
            if random.random() < density:
                outputs = len(ops[source]["outputs"])
                for output in {random.randint(-1, outputs - 1) for _ in range(random.choice([1, 1, 2, 3]))}:
                    edges += [[source, output, op]] * random.choice([1, 1, 1, 2])
                    inputs += [[source, output]] if output >= 0 else []
        ops[op] = _op(random, op, inputs)
        if random.random() < given:
            ops[op]["time_ns"] = _given_times(random, device_names)
        elif modelled or random.random() < 0.5:
            ops[op] |= {"flops": random.choice([0, 1, 5, 30]), "kernel": random.random() < 0.8}
    random.shuffle(edges)
    return {"format": "gnnplace.graph", "version": 1, "name": "random", "ops": ops, "edges": edges}


def _op(random: Random, op: int, inputs: list[list[int]]) -> dict[str, Any]:
    outputs = []
    for _ in range(random.choice([0, 1, 1, 1, 2, 3])):
        output: dict[str, Any] = {"bytes": random.choice([0, 1, 2, 3, 7, 10, 50]), "dtype": random.choice(["float32", "float16"])}
        if inputs and random.random() < 0.4:
            output["alias_of"] = random.choice(inputs)
        outputs.append(output | ({"is_result": True} if random.random() < 0.1 else {}))
    fields: dict[str, Any] = {"name": f"op{op}", "kind": "MatMul", "outputs": outputs}
    if random.random() < 0.3:
        fields["persistent_bytes"] = random.choice([1, 5, 20])
    if random.random() < 0.3:
        fields["workspace_bytes"] = random.choice([1, 5, 20])
    if random.random() < 0.04:
        fields["allowed"] = random.sample(KINDS, 2)
    if random.random() < 0.1:
        fields["colocation"] = random.choice(["a", "b"])
    if random.random() < 0.2:
        fields["bytes_accessed"] = random.choice([0, 5, 40])
    return fields


def _given_times(random: Random, device_names: list[str]) -> dict[str, int]:
    keys = list(KINDS) if random.random() < 0.97 else [random.choice(KINDS)]
    keys += [name for name in device_names if random.random() < 0.2]
    return {key: random.choice([0, 1, 1, 2, 3, 5, 8]) for key in keys}


def random_cluster(random: Random) -> dict[str, Any]:
    """1-4 devices; streams, shared channels, devices that copy by themselves and, sometimes, missing links."""
    devices = [_device(random, index) for index in range(random.choice([1, 2, 2, 3, 3, 4]))]
    missing = random.choice([0.0, 0.0, 0.0, 0.2])
    buses = random.choice([0.0, 0.0, 0.3, 1.0])
    copies = {device["name"]: random.choice([0.0, 0.0, 0.5, 1.0]) for device in devices}
    links = [
        _link(random, src["name"], dst["name"], buses, copies)
        for src in devices
        for dst in devices
        if src is not dst and random.random() >= missing
    ]
    return {"format": "gnnplace.cluster", "version": 1, "name": "random", "devices": devices, "links": links, "isolated": missing > 0}


def _device(random: Random, index: int) -> dict[str, Any]:
    kind = random.choice(KINDS)
    rate = random.choice([10**9, 3 * 10**9, {"float32": 2 * 10**9, "bfloat16": 7 * 10**9}])
    fields = {"name": f"{kind}:{index}", "kind": kind, "memory_bytes": random.choice([30, 80, 10**6]), "flops_per_s": rate}
    fields |= {"memory_bytes_per_s": random.choice([2 * 10**9, 9 * 10**9]), "streams": random.choice([1, 1, 1, 2, 3])}
    fields |= random.choice([{}, {"memory": "host"}, {"memory": "host"}, {"memory": "other"}])
    fields |= random.choice([{}, {"contended_memory_bytes_per_s": 10**9}, {"contended_memory_bytes_per_s": 10**8}])
    return fields | random.choice([{}, {"launch_ns": 2, "dispatch_ns": 3}])


def _link(random: Random, src: str, dst: str, buses: float, copies: dict[str, float]) -> dict[str, Any]:
    fields = {"src": src, "dst": dst, "bandwidth_bytes_per_s": random.choice([10**9, 3 * 10**9, 10**12])}
    fields |= {"overhead_ns": random.choice([0, 0, 1, 3]), "latency_ns": random.choice([0, 0, 1, 2, 10])}
    if random.random() < copies[dst]:
        fields |= {"receive_channel": random.choice([dst, dst, dst, "bus", "inbox"])}
    if random.random() < copies[src]:
        return fields | {"channel": src}
    return fields | ({"channel": random.choice(["bus", "ring"])} if random.random() < buses else {})
