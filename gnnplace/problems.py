"""A problem: one graph on one cluster, with the time of every op on every device and of every transfer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.cluster import Cluster, Link
from gnnplace.graph import NONE, ComputationGraph

# 104 days. Times (and bytes) of a step are below 2^53, which floating point counts exactly, and sums fit in 64 bits.
MAX_STEP_NS = 2**53
NS_PER_S = 10**9


@dataclass(frozen=True, eq=False)
class Problem:
    """Graph x cluster x costs. `time_ns[i, d] >= 1` is the time of op i on device d, from a cost model of `costs/`.

    `contended_ns[i, d] >= time_ns[i, d]` is that time while another device of the same memory runs an op; None if it is
    the same. Raises ValueError if a step could take `MAX_STEP_NS` or hold 2^53 bytes, or if its ops have 2^62 flops or
    move 2^62 bytes.
    """

    graph: ComputationGraph
    cluster: Cluster
    time_ns: Int64[np.ndarray, "ops devices"]
    contended_ns: Int64[np.ndarray, "ops devices"] | None = None

    def __post_init__(self) -> None:
        assert self.time_ns.shape == (self.graph.num_ops, self.cluster.num_devices)
        assert self.time_ns.min() >= 1
        if self.contended_ns is not None:
            assert self.contended_ns.shape == self.time_ns.shape and (self.contended_ns >= self.time_ns).all()
            self.contended_ns.setflags(write=False)
        self._require_countable()
        self.time_ns.setflags(write=False)

    def _require_countable(self) -> None:
        graph = self.graph
        held = sum(map(_total, (graph.persistent_bytes, graph.workspace_bytes, graph.output_bytes, graph.edge_bytes)))
        moved, flops = _total(graph.effective_bytes_accessed), _total(graph.flops)
        for what, most, bits in (
            ("ns", self.longest_ns, 53),
            ("bytes held", held, 53),
            ("bytes moved", moved, 62),
            ("flops", flops, 62),
        ):
            if most >= 2**bits:
                raise ValueError(
                    f"{graph.name} on {self.cluster.name}: a step could have {most:.3g} {what}; less than 2^{bits} "
                    "are due"
                )

    @property
    def num_ops(self) -> int:
        return self.graph.num_ops

    @property
    def num_devices(self) -> int:
        return self.cluster.num_devices

    @property
    def slowest_ns(self) -> Int64[np.ndarray, "ops devices"]:
        """The longest time of each op: its contended time if there is one."""
        return self.time_ns if self.contended_ns is None else self.contended_ns

    @property
    def longest_ns(self) -> float:
        """An upper bound on every step: all ops and all transfers one after another. Exact below `MAX_STEP_NS`."""
        # the 0 at the end belongs to control edges, whose `edge_data` is `NONE`, -1
        sent = np.append(self.transfer_ns.max(axis=1, initial=0), 0)[self.graph.edge_data]
        latency = int(self.cluster.link_latency_ns.max(initial=1)) * self.graph.num_edges
        return _total(self.slowest_ns.max(axis=1)) + 2 * _total(sent) + latency

    @cached_property
    def allowed(self) -> Bool[np.ndarray, "ops devices"]:
        """True if an op is allowed on a device: by its name or kind and, if the graph gives it times, by one there."""
        graph, devices = self.graph, self.cluster.devices
        allowed = np.ones((self.num_ops, self.num_devices), dtype=bool)
        gives_times = (
            (graph.given_time_ns != NONE).any(axis=1) if graph.given_keys else np.zeros(self.num_ops, dtype=bool)
        )
        for d, device in enumerate(devices):
            allowed[:, d] &= allowed_on(graph, device.name, device.kind)
            columns = [j for j, key in enumerate(graph.given_keys) if key in (device.name, device.kind)]
            covered = (graph.given_time_ns[:, columns] != NONE).any(axis=1)
            allowed[:, d] &= ~gives_times | covered
        return allowed

    @cached_property
    def link_rate(self) -> Int32[np.ndarray, " links"]:
        """The rate of each link, a column of `transfer_ns`. Links of equal bandwidth and overhead share a rate."""
        return np.array([self._rates.index(_rate(link)) for link in self.cluster.links], dtype=np.int32)

    @cached_property
    def _rates(self) -> list[tuple[int, int]]:
        return list(dict.fromkeys(_rate(link) for link in self.cluster.links))

    @cached_property
    def transfer_ns(self) -> Int64[np.ndarray, "outputs rates"]:
        """The time each output occupies a channel, per rate: `max(1, overhead + ceil(bytes * 10^9 / bandwidth))`."""
        size = self.graph.output_bytes
        columns = [np.maximum(1, overhead + duration_ns(size, bandwidth)) for bandwidth, overhead in self._rates]
        return np.stack(columns, axis=1) if columns else np.zeros((len(size), 0), dtype=np.int64)


def allowed_on(graph: ComputationGraph, *named: str) -> Bool[np.ndarray, " ops"]:
    """True for ops whose field `allowed` admits a device of this name or kind.

    Times given by the graph may restrict ops further.
    """
    listing = [value for value in graph.allowed.values if not set(named).isdisjoint(value.split(","))]
    return (graph.allowed.index == NONE) | graph.allowed.among(listing)


def _total(values: Int64[np.ndarray, " rows"]) -> float:
    """The sum, which may exceed 64 bits."""
    return float(values.sum(dtype=np.float64))


def _rate(link: Link) -> tuple[int, int]:
    return link.bandwidth_bytes_per_s, link.overhead_ns


def duration_ns(amount: Int64[np.ndarray, "*shape"], per_second: int) -> Int64[np.ndarray, "*shape"]:
    """`min(MAX_STEP_NS, ceil(amount * 10^9 / per_second))` in integers (docs/execution-model.md#integers).

    Products exceed 64 bits, so each distinct amount is divided once, as a Python integer.
    """
    distinct, index = np.unique(amount, return_inverse=True)
    quotients = [min(MAX_STEP_NS, -(-value * NS_PER_S // per_second)) for value in distinct.tolist()]
    return np.array(quotients, dtype=np.int64)[index].reshape(amount.shape)
