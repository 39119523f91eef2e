"""Fusion in the plain implementation: docs/execution-model.md#fusion, sharing nothing with the package.

It writes the fused graph down as a document, gives each fused op its time, and lets the plain simulator run it.
"""

from __future__ import annotations

from support.plain_simulator import PlainResult, PlainSimulator, ceil

HEAVY = {None, "other", "matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight", "attention"}  # or alone


def simulator(graph, cluster, device, schedule, priority, fusion) -> PlainSimulator:
    """The plain simulator of a placement, fused or not; `fusion[i]` is the label of op i, or None for all."""
    if fusion is None:
        return PlainSimulator(graph, cluster, device, schedule, priority)
    return Fused(graph, cluster, device, schedule, priority, fusion)


def refused(graph: dict, device: list[int], fusion: list[int]) -> bool:
    """Whether ops can't be fused so."""
    ops, groups = graph["ops"], grouped(fusion)
    data = {(s, d) for s, k, d in graph["edges"] if k >= 0}
    for members in groups:
        if len(members) == 1:
            continue
        kinds = [ops[i].get("canonical_kind") for i in members]
        if any(ops[i].get("persistent_bytes") for i in members) or {"variable", "input", "control"} & set(kinds):
            return True
        if sum(ops[i].get("kernel", True) and kind in HEAVY for i, kind in zip(members, kinds, strict=True)) > 1:
            return True
        if len({device[i] for i in members}) > 1:
            return True
        reached = {members[0]}
        for _ in members:
            reached |= {j for j in members for i in reached if (i, j) in data or (j, i) in data}
        if reached != set(members):
            return True
    return cyclic(graph, fusion)


def cyclic(graph: dict, fusion: list[int]) -> bool:
    """Whether groups wait for each other: some can't be taken away one after another, each when nothing left leads to it."""
    left = set(fusion)
    edges = {(fusion[s], fusion[d]) for s, _, d in graph["edges"] if fusion[s] != fusion[d]}
    while free := {group for group in left if not any(a in left and b == group for a, b in edges)}:
        left -= free
    return bool(left)


def grouped(fusion: list[int]) -> list[list[int]]:
    """The ops of each group, groups by their first op."""
    groups: dict[int, list[int]] = {}
    for i, label in enumerate(fusion):
        groups.setdefault(label, []).append(i)
    return list(groups.values())


class Fused(PlainSimulator):
    """The step of the fused graph, told of the ops that were fused."""

    def __init__(self, graph, cluster, device, schedule, priority, fusion) -> None:
        self.single = PlainSimulator(graph, cluster, device, schedule, priority)
        self.refused = refused(graph, device, fusion)
        if self.refused:
            return
        self.groups = grouped(fusion)
        self.of = {i: g for g, members in enumerate(self.groups) for i in members}
        self.kept = [
            [(i, k) for i in members for k in range(len(self.single.ops[i]["outputs"])) if self.leaves((i, k))] for members in self.groups
        ]
        devices = [device[members[0]] for members in self.groups]
        highest = None if priority is None else [max(priority[i] for i in members) for members in self.groups]
        super().__init__(self.document(), cluster, devices, schedule, highest)
        alone = [
            [self.fused_time(members, d, self.single.time, "memory_bytes_per_s") for d in range(len(self.devices))]
            for members in self.groups
        ]
        beside = [
            [self.fused_time(members, d, self.single.contended, "contended_memory_bytes_per_s") for d in range(len(self.devices))]
            for members in self.groups
        ]
        self.time, self.contended = alone, [[max(pair) for pair in zip(*rows, strict=True)] for rows in zip(alone, beside, strict=True)]

    def leaves(self, output: tuple[int, int]) -> bool:
        readers = [j for j, inputs in enumerate(self.single.data_inputs) if output in inputs]
        result = self.single.ops[output[0]]["outputs"][output[1]].get("is_result")
        return bool(result or not readers or any(self.of[j] != self.of[output[0]] for j in readers))

    def document(self) -> dict:
        ops = []
        for g, members in enumerate(self.groups):
            outputs = []
            for i, k in self.kept[g]:
                made = dict(self.single.ops[i]["outputs"][k])
                named = made.pop("alias_of", None)
                while named is not None and self.of[named[0]] == g:
                    named = self.single.ops[named[0]]["outputs"][named[1]].get("alias_of")
                if named is not None:
                    made["alias_of"] = self.numbered(tuple(named))
                outputs.append(made)
            held = [self.single.ops[i] for i in members]
            ops.append({
                "name": held[0]["name"], "kind": "Fused", "outputs": outputs,
                "persistent_bytes": sum(op.get("persistent_bytes", 0) for op in held),
                "workspace_bytes": max(op.get("workspace_bytes", 0) for op in held),
            })  # fmt: skip
        edges = [
            [*(self.numbered((s, k)) if k >= 0 else (self.of[s], -1)), self.of[d]]
            for s, k, d in self.single.edges
            if self.of[s] != self.of[d]
        ]
        return {"ops": ops, "edges": edges}

    def numbered(self, output: tuple[int, int]) -> list[int]:
        g = self.of[output[0]]
        return [g, self.kept[g].index(output)]

    # times

    def fused_time(self, members: list[int], d: int, times: list[list[int]], rate: str) -> int:
        if len(members) == 1:
            return times[members[0]][d]
        device = self.devices[d]
        per_s = int(device.get(rate, device["memory_bytes_per_s"]))
        launches, beyond, arithmetic, traffic = [], 0, 0, 0
        for i in members:
            kernel = self.single.ops[i].get("kernel", True)
            launch = min(device.get("launch_ns" if kernel else "dispatch_ns", 0), times[i][d] - 1)
            rest = times[i][d] - launch
            computes = min(rest, max(1, self.single.arithmetic(i, d) if kernel else 0))
            moves = min(rest, ceil(self.single.accessed(i) * 10**9, per_s)) if kernel else 0
            launches.append(launch)
            beyond += rest - max(computes, moves)
            arithmetic += computes
            traffic += min(rest, ceil(self.moved(i) * 10**9, per_s)) if kernel else 0
        return max(launches) + beyond + max(arithmetic, traffic)

    def moved(self, i: int) -> int:
        """The bytes that an op with a kernel reads and writes in its group."""
        members = self.groups[self.of[i]]
        moved = self.single.accessed(i)
        for output in self.single.data_inputs[i]:
            earlier = [j for j in members if j < i and self.single.ops[j].get("kernel", True) and output in self.single.data_inputs[j]]
            shown = self.shown(output, i)
            if earlier or (shown is not None and self.of[shown[0]] == self.of[i]):
                moved -= self.single.bytes(output)
        outs = [(j, k) for j in members for k in range(len(self.single.ops[j]["outputs"]))]
        written = {self.shown(output, i) for output in outs if self.leaves(output)}
        moved -= sum(self.single.bytes((i, k)) for k in range(len(self.single.ops[i]["outputs"])) if (i, k) not in written)
        return max(0, moved)

    def shown(self, output: tuple[int, int], i: int) -> tuple[int, int] | None:
        """What an output shows to op i: through views within its group, None where no kernel made it."""
        op = self.single.ops[output[0]]
        if self.of[output[0]] != self.of[i] or op.get("kernel", True):
            return output
        named = op["outputs"][output[1]].get("alias_of")
        return None if named is None else self.shown(tuple(named), i)

    # the step

    def legal(self) -> bool:
        return self.single.legal()

    def run(self) -> PlainResult:
        if self.refused:
            busy = [
                sum(self.single.time[i][d] for i, place in enumerate(self.single.device) if place == d)
                for d in range(len(self.single.devices))
            ]
            return PlainResult(None, None, False, None, busy, 0, [], [None] * len(self.single.ops))
        result = super().run()
        for transfer in result.transfers:
            transfer.source = self.kept[transfer.source[0]][transfer.source[1]]
        result.start_ns = [result.start_ns[self.of[i]] for i in range(len(self.single.ops))]
        return result
