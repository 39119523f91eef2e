"""A second implementation of docs/execution-model.md: plain, slow, and sharing nothing with the package but the records it reads.

It reads a graph's and a cluster's *documents* (the dictionaries of docs/formats.md), costs and ranks included, keeps sets and
lists, looks at every device and channel at every moment, and recomputes memory from who holds what.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


def ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(eq=False)
class Transfer:
    source: tuple[int, int]
    here: int
    there: int
    start: int | None = None
    leaves: int | None = None  # the channel of its link
    received_from: int | None = None  # occupies the receive channel, if there is one
    received: int | None = None
    arrives: int | None = None


@dataclass
class PlainResult:
    step_time_ns: int | None
    memory_fits: bool | None
    legal: bool
    peak_memory_bytes: list[int] | None
    busy_ns: list[int]
    transferred_bytes: int
    transfers: list[Transfer]
    start_ns: list[int | None]


class PlainSimulator:
    """One step of one placement: `device[i]` is an index into the cluster's devices."""

    def __init__(self, graph: dict, cluster: dict, device: list[int], schedule: str = "critical-path", priority: list[int] | None = None):
        self.ops, self.devices, self.device = graph["ops"], cluster["devices"], device
        self.edges = sorted({tuple(edge) for edge in graph["edges"]})
        index = {d["name"]: i for i, d in enumerate(self.devices)}
        self.links = {(index[link["src"]], index[link["dst"]]): link for link in cluster["links"]}
        self.data_inputs = [{(s, k) for s, k, d in self.edges if d == i and k >= 0} for i in range(len(self.ops))]
        self.time = [[self.cost(i, d) for d in range(len(self.devices))] for i in range(len(self.ops))]
        self.contended = [[self.cost(i, d, "contended_memory_bytes_per_s") for d in range(len(self.devices))] for i in range(len(self.ops))]
        self.into = [[(s, k) for s, k, d in self.edges if d == i] for i in range(len(self.ops))]
        self.touched = [self.touched_roots(i) for i in range(len(self.ops))]
        self.schedule, self.given = schedule, priority
        if schedule == "in-order":  # each op waits for the one before it on its device
            queue = sorted(range(len(self.ops)), key=lambda i: (device[i], -priority[i], i))
            for before, i in pairwise(queue):
                self.into[i] += [(before, -1)] if device[before] == device[i] else []

    # costs

    def cost(self, i: int, d: int, memory_rate: str = "memory_bytes_per_s") -> int:
        op, device = self.ops[i], self.devices[d]
        times = op.get("time_ns") or {}
        if times:
            return max(1, times.get(device["name"], times.get(device["kind"], max(times.values()))))
        if not op.get("kernel", True):
            source = not any(d == i for _, _, d in self.edges)
            alias = op["outputs"] and all(output.get("alias_of") for output in op["outputs"])
            return 1 if source or alias else max(1, device.get("dispatch_ns", 0))
        traffic = ceil(self.accessed(i) * 10**9, int(device.get(memory_rate, device["memory_bytes_per_s"])))
        return max(1, device.get("launch_ns", 0) + max(self.arithmetic(i, d), traffic))

    def arithmetic(self, i: int, d: int) -> int:
        op, rate = self.ops[i], self.devices[d]["flops_per_s"]
        if isinstance(rate, dict):
            dtype = op["outputs"][0].get("dtype") if op["outputs"] else None
            rate = rate.get(dtype, min(rate.values()))
        return ceil(op.get("flops", 0) * 10**9, int(rate))

    def accessed(self, i: int) -> int:
        accessed = self.ops[i].get("bytes_accessed")
        if accessed is None:
            accessed = sum(self.bytes(output) for output in self.data_inputs[i]) + sum(o["bytes"] for o in self.ops[i]["outputs"])
        return accessed

    def bytes(self, output: tuple[int, int]) -> int:
        return self.ops[output[0]]["outputs"][output[1]]["bytes"]

    def occupation(self, output: tuple[int, int], here: int, there: int) -> int:
        link = self.links[here, there]
        return max(1, link.get("overhead_ns", 0) + ceil(self.bytes(output) * 10**9, int(link["bandwidth_bytes_per_s"])))

    def latency(self, here: int, there: int) -> int:
        return self.links[here, there].get("latency_ns", 0)

    def rank(self) -> list[int]:
        known: dict[int, int] = {}

        def of(i: int) -> int:
            if i not in known:
                paths = [0]
                for s, k, j in self.edges:
                    if s == i:
                        here, there, delay = self.device[i], self.device[j], 0
                        if here != there and k < 0:
                            delay = max(1, self.latency(here, there))
                        elif here != there:
                            hops = 2 if self.links[here, there].get("receive_channel") else 1
                            delay = hops * self.occupation((i, k), here, there) + self.latency(here, there)
                        paths.append(delay + of(j))
                known[i] = self.time[i][self.device[i]] + max(paths)
            return known[i]

        return [of(i) for i in range(len(self.ops))]

    def depth(self) -> list[int]:
        """The longest path is as long as one can go on taking all consumers of what was reached."""
        depth = []
        for i in range(len(self.ops)):
            reached, steps = {i}, 0
            while reached:
                reached, steps = {j for s, _, j in self.edges if s in reached}, steps + 1
            depth.append(steps)
        return depth

    def memory(self) -> list[int]:
        """The memory order: what each op adds is counted anew at every step."""
        n, rank, sequence = len(self.ops), self.rank(), []
        size, makes = {}, [set() for _ in range(n)]  # buffers are (root, device)
        for (s, k), there in self.sent():
            root = self.root((s, k))
            if self.device[root[0]] != there:
                makes[s].add((root, there))
                size[root, there] = max(size.get((root, there), 0), self.bytes((s, k)))
        for i in range(n):
            for k, output in enumerate(self.ops[i]["outputs"]):
                if output.get("alias_of") is None:
                    makes[i].add(((i, k), self.device[i]))
                    size[(i, k), self.device[i]] = output["bytes"]
        uses = [{(root, self.device[i]) for root in self.touched[i]} for i in range(n)]
        kept = [(self.root((i, k)), self.device[i]) for i in range(n) for k, o in enumerate(self.ops[i]["outputs"]) if o.get("is_result")]

        def added(i: int) -> int:
            later = set().union(kept, *(uses[j] for j in range(n) if j != i and j not in sequence))
            return sum(size[key] for key in makes[i]) - sum(size[key] for key in uses[i] - later)

        while len(sequence) < n:
            ready = [i for i in range(n) if i not in sequence and all(s in sequence for s, _ in self.into[i])]
            sequence.append(min(ready, key=lambda i: (added(i), -rank[i], i)))
        return [n - sequence.index(i) for i in range(n)]

    # legality

    def linked(self) -> bool:
        return all(self.device[s] == self.device[j] or (self.device[s], self.device[j]) in self.links for s, _, j in self.edges)

    def legal(self) -> bool:
        for i, op in enumerate(self.ops):
            device, times = self.devices[self.device[i]], op.get("time_ns") or {}
            if op.get("allowed") is not None and not {device["kind"], device["name"]} & set(op["allowed"]):
                return False
            if times and device["name"] not in times and device["kind"] not in times:
                return False
            for j, other in enumerate(self.ops):
                if op.get("colocation") is not None and op["colocation"] == other.get("colocation") and self.device[i] != self.device[j]:
                    return False
        return True

    # buffers

    def root(self, output: tuple[int, int]) -> tuple[int, int]:
        alias = self.ops[output[0]]["outputs"][output[1]].get("alias_of")
        return output if alias is None else self.root(tuple(alias))

    def lies(self, output: tuple[int, int], d: int) -> tuple[int, int]:
        """Whose buffer on a device an output lies in, where it is made there or received."""
        root, alias = self.root(output), self.ops[output[0]]["outputs"][output[1]].get("alias_of")
        received = self.devices[d].get("received")
        if received is None:
            return root
        if self.device[output[0]] != d:
            return root if received == "parts" and self.bytes(output) >= self.bytes(root) else output
        return output if alias is None else self.lies(tuple(alias), d)

    def touched_roots(self, i: int) -> set[tuple[int, int]]:
        return {self.root(output) for output in self.touched_outputs(i)}

    def touched_outputs(self, i: int) -> set[tuple[int, int]]:
        return self.data_inputs[i] | {(i, k) for k in range(len(self.ops[i]["outputs"]))}

    def sent(self) -> list[tuple[tuple[int, int], int]]:
        """Every (output, destination) that this placement needs, by op, output, device."""
        return sorted({((s, k), self.device[j]) for s, k, j in self.edges if k >= 0 and self.device[s] != self.device[j]})

    # the step

    def run(self) -> PlainResult:
        busy = [0] * len(self.devices)
        for i, d in enumerate(self.device):
            busy[d] += self.time[i][d]
        sent = self.sent()
        moved = sum(self.bytes(output) for output, _ in sent)
        transfers = [Transfer(output, self.device[output[0]], there) for output, there in sent]
        if not self.linked():
            return PlainResult(None, None, self.legal(), None, busy, moved, transfers, [None] * len(self.ops))
        step, peak, start, end = self.simulate(transfers)
        busy = [sum(end[i] - start[i] for i, place in enumerate(self.device) if place == d) for d in range(len(self.devices))]
        fits = all(peak[d] <= device["memory_bytes"] for d, device in enumerate(self.devices))
        return PlainResult(step, fits, self.legal(), peak, busy, moved, transfers, start)

    def simulate(self, transfers: list[Transfer]) -> tuple[int, list[int], list[int | None], list[int | None]]:
        n, num_devices = len(self.ops), len(self.devices)
        rules = {
            "fifo": lambda: [0] * n,
            "critical-path": self.rank,
            "depth": self.depth,
            "memory": self.memory,
            "given": lambda: self.given,
            "in-order": lambda: self.given,
        }
        ranks = rules[self.schedule]()
        start: list[int | None] = [None] * n
        end: list[int | None] = [None] * n
        queues: dict[object, list[tuple[Transfer, str]]] = {}
        occupied_until: dict[object, int] = {}
        buffers: dict[tuple[tuple[int, int], int], int] = {}  # bytes of (root, device)
        channel_of = {pair: ("named", link["channel"]) if link.get("channel") else ("own", pair[0]) for pair, link in self.links.items()}
        receiver_of = {pair: ("named", link["receive_channel"]) for pair, link in self.links.items() if link.get("receive_channel")}
        channels = list(dict.fromkeys([*channel_of.values(), *receiver_of.values()]))  # by link, as the document lists them
        itself = {("named", device["name"]): d for d, device in enumerate(self.devices)}  # channels that are devices
        transfer_of = {(t.source, t.there): t for t in transfers}
        peak, now = [0] * num_devices, 0
        held_by = [{self.lies(o, self.device[i]) for o in self.touched_outputs(i)} for i in range(n)]

        def arrival(s: int, k: int, j: int) -> int | None:
            """When the edge's data or control is on the consumer's device, None while that isn't known."""
            if end[s] is None or end[s] > now:
                return None
            here, there = self.device[s], self.device[j]
            if here == there:
                return end[s]
            if k < 0:
                return end[s] + max(1, self.latency(here, there))
            return transfer_of[(s, k), there].arrives

        def ready_time(j: int) -> int | None:
            if any(end[s] is None or end[s] > now for s, _ in self.into[j]):
                return None
            arrivals = [arrival(s, k, j) for s, k in self.into[j]]
            return None if None in arrivals else max(arrivals, default=0)

        def busy_streams(d: int) -> int:
            """How many streams of a device run an op, or a transfer that the device copies by itself."""
            running = [i for i in range(n) if self.device[i] == d and start[i] is not None and end[i] > now]
            sending = [t for t in transfers if t.start is not None and t.leaves > now and itself.get(channel_of[t.here, t.there]) == d]
            receiving = [t for t in transfers if t.received_from is not None and t.received > now]
            receiving = [t for t in receiving if itself.get(receiver_of[t.here, t.there]) == d]
            return len(running) + len(sending) + len(receiving)

        def lasts(i: int, d: int) -> int:
            """What op i takes that starts now on device d, others having started where they could."""
            memory = self.devices[d].get("memory")
            others = [j for j in range(n) if self.device[j] != d and start[j] is not None and end[j] > now]
            beside = memory is not None and any(self.devices[self.device[j]].get("memory") == memory for j in others)
            return self.contended[i][d] if beside else self.time[i][d]

        def still_held(root: tuple[int, int], d: int) -> bool:
            for i in range(n):
                if self.device[i] == d and root in held_by[i] and (end[i] is None or end[i] > now):
                    return True
                for k, output in enumerate(self.ops[i]["outputs"]):
                    if output.get("is_result") and self.device[i] == d and self.lies((i, k), d) == root:
                        return True
            for t in transfers:
                source_ended = end[t.source[0]] is not None and end[t.source[0]] <= now
                if t.here == d and self.lies(t.source, d) == root and source_ended and (t.leaves is None or t.leaves > now):
                    return True
                if t.there == d and self.lies(t.source, d) == root and t.start is not None and (t.arrives is None or t.arrives > now):
                    return True
            return False

        while True:
            # 1. what ends or arrives; what is no longer held is released; ops that ended queue their transfers
            for key in [key for key in buffers if not still_held(*key)]:
                del buffers[key]
            for channel in channels:
                for t in transfers:
                    if t.leaves == now and channel_of[t.here, t.there] == channel and (t.here, t.there) in receiver_of:
                        queues.setdefault(receiver_of[t.here, t.there], []).append((t, "receive"))
            for i in range(n):
                if end[i] == now:
                    for t in transfers:
                        if t.source[0] == i:
                            queues.setdefault(channel_of[t.here, t.there], []).append((t, "send"))
            # 2. idle channels; one that is a device needs an idle stream of it
            for channel, queue in queues.items():
                if not queue or occupied_until.get(channel, 0) > now:
                    continue
                if channel in itself and busy_streams(itself[channel]) >= self.devices[itself[channel]].get("streams", 1):
                    continue
                t, part = queue.pop(0)
                occupied_until[channel] = now + self.occupation(t.source, t.here, t.there)
                if part == "receive":
                    t.received_from, t.received = now, occupied_until[channel]
                    t.arrives = t.received + self.latency(t.here, t.there)
                else:
                    t.start, t.leaves = now, occupied_until[channel]
                    if (t.here, t.there) not in receiver_of:
                        t.arrives = t.leaves + self.latency(t.here, t.there)
                    root = self.lies(t.source, t.there)
                    if (root, t.there) not in buffers:
                        alike = [o.source for o in transfers if o.there == t.there and self.lies(o.source, o.there) == root]
                        buffers[root, t.there] = max(self.bytes(output) for output in alike)
            # 3. devices
            for d, device in enumerate(self.devices):
                ready = [(-ranks[i], ready_time(i), i) for i in range(n) if self.device[i] == d and start[i] is None]
                ready = sorted(entry for entry in ready if entry[1] is not None and entry[1] <= now)
                for _, _, i in ready[: max(0, device.get("streams", 1) - busy_streams(d))]:
                    start[i], end[i] = now, now + lasts(i, d)
                    for k, output in enumerate(self.ops[i]["outputs"]):
                        if output.get("alias_of") is None:
                            assert ((i, k), d) not in buffers
                            buffers[(i, k), d] = output["bytes"]
            for d in range(num_devices):
                used = sum(op.get("persistent_bytes", 0) for i, op in enumerate(self.ops) if self.device[i] == d)
                used += sum(op.get("workspace_bytes", 0) for i, op in enumerate(self.ops)
                            if self.device[i] == d and start[i] is not None and end[i] > now)  # fmt: skip
                used += sum(size for (_, on), size in buffers.items() if on == d)
                peak[d] = max(peak[d], used)
            moments = [time for time in end if time is not None and time > now]
            times = [time for t in transfers for time in (t.leaves, t.received, t.arrives)]
            moments += [time for time in times if time is not None and time > now]
            moments += [time for j in range(n) if start[j] is None and (time := ready_time(j)) is not None and time > now]
            if not moments:
                assert all(time is not None for time in end)
                last = max([*end, *(t.arrives for t in transfers)])
                return last, peak, start, end
            now = min(moments)
