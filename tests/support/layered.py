"""A training step of equal layers, as small as may be, for tests of micro-batches and replicas."""

from __future__ import annotations

from gnnplace.graph import ComputationGraph, Op, Output

WEIGHT, ACTIVATION = 1000, 100  # bytes


def layered(layers: int, time_ns: int = 10_000, weight: int = WEIGHT, activation: int = ACTIVATION, named: bool = True) -> ComputationGraph:
    """A chain of layers: forward, loss, gradients of inputs and of weights, an update that is an alias of its weight."""
    ops: list[Op] = [Op("x", "input", (Output(activation, (1,)),), kernel=False, phase="other", canonical_kind="input")]
    edges: list[tuple[int, int, int]] = []
    number = {"x": 0}

    def add(name: str, kind: str, reads: list[str], size: int, phase: str, **columns) -> None:
        number[name] = len(ops)
        alias = columns.pop("alias_of", None)
        is_result = columns.pop("is_result", False)
        output = Output(size, dtype="float32", alias_of=None if alias is None else (number[alias], 0), is_result=is_result)
        kernel = columns.get("kernel", True)
        ops.append(Op(name, kind, (output,), time_ns={"gpu": time_ns} if kernel else {}, phase=phase, **columns))
        edges.extend((number[read], 0, number[name]) for read in reads)

    for layer in range(layers):
        group, own = {"colocation": f"w{layer}"}, {"layer": f"layer.{layer}", "block": layer}
        add(f"w{layer}", "variable", [], 0, "other", kernel=False, persistent_bytes=3 * weight, canonical_kind="variable", **group, **own)
        add(f"w{layer}/read", "read", [f"w{layer}"], weight, "other", kernel=False, alias_of=f"w{layer}", **own)
        before = f"f{layer - 1}" if layer else "x"
        add(f"f{layer}", "forward", [before, f"w{layer}/read"], activation, "forward", **own)
    add("loss", "loss", [f"f{layers - 1}"], 4, "forward", is_result=True)
    for layer in reversed(range(layers)):
        group, own = {"colocation": f"w{layer}"}, {"layer": f"layer.{layer}", "block": layer}
        behind = f"b{layer + 1}" if layer + 1 < layers else "loss"
        add(f"b{layer}", "backward", [behind, f"w{layer}/read"], activation, "backward_data", **own)
        add(f"g{layer}", "gradient", [behind, f"f{layer - 1}" if layer else "x"], weight, "backward_weight", **own)
        add(f"u{layer}", "update", [f"w{layer}/read", f"g{layer}"], weight, "update", alias_of=f"w{layer}/read", **group, **own)
    return ComputationGraph.from_ops("layered", ops, edges)
