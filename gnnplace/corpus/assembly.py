"""Assembles a cluster from parts of the hardware table: equal nodes, each a host and its accelerators.

Every pair of devices is linked. Host and accelerator are linked by PCIe. Two accelerators of a node have a direct link,
at the rate that the table gives for a pair, if they are of the same model and the named link joins them. Otherwise they
are linked by PCIe through the host: two copies one after the other, so half the slower rate and both latencies. Devices
of different nodes are linked by the network, and all transfers that a node sends share one channel.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import NamedTuple

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import hardware
from gnnplace.corpus.hardware import Connection, Part, Wire


class MachineParts(NamedTuple):
    """The parts of equal nodes, and the links that join them.

    `slot` joins host and accelerators (None: the slot that each accelerator is made for), `peer` joins accelerators of
    a node, `network` joins nodes.
    """

    nodes: int
    host: Part
    accelerators: tuple[Part, ...]
    slot: Connection | None = None
    peer: Connection | None = None
    network: Connection | None = None
    tf32: bool = False


class NodeDevice(NamedTuple):
    """A device of the cluster: its node, its part, and its number among the same parts of its node."""

    device: Device
    node: int
    part: Part
    number: int


def assembled(name: str, machine: MachineParts) -> Cluster:
    """The cluster of a machine: hosts first, then accelerators, numbered by kind.

    Raises ValueError if a link joins nothing.
    """
    _check_peer(machine)
    devices = _devices(machine)
    links = tuple(_link(machine, src, dst) for src, dst in permutations(devices, 2))
    return Cluster(name, tuple(device.device for device in devices), links)


def _devices(machine: MachineParts) -> list[NodeDevice]:
    hosts = [NodeDevice(machine.host.device(f"cpu:{node}"), node, machine.host, 0) for node in range(machine.nodes)]
    accelerators, kinds = [], Counter[str]()
    for node in range(machine.nodes):
        numbers = Counter[str]()
        for part in machine.accelerators:
            device = part.device(f"{part.kind}:{kinds[part.kind]}", machine.tf32)
            accelerators.append(NodeDevice(device, node, part, numbers[part.name]))
            kinds[part.kind] += 1
            numbers[part.name] += 1
    return [*hosts, *accelerators]


def _link(machine: MachineParts, src: NodeDevice, dst: NodeDevice) -> Link:
    channel = None if src.node == dst.node else f"network:{src.node}"
    return linked(src.device.name, dst.device.name, _wire(machine, src, dst), channel)


def linked(src: str, dst: str, wire: Wire, channel: str | None = None) -> Link:
    """A link between two devices (by name) with the figures of a wire."""
    return Link(
        src, dst, wire.bandwidth_bytes_per_s, overhead_ns=wire.overhead_ns, latency_ns=wire.latency_ns, channel=channel
    )


def _wire(machine: MachineParts, src: NodeDevice, dst: NodeDevice) -> Wire:
    if src.node != dst.node:
        assert machine.network is not None
        return machine.network.wire
    slots = [slot(end.part, machine.slot) for end in (src, dst) if end.part.kind != "cpu"]
    if len(slots) == 1:
        return slots[0]
    return _direct(machine, src, dst) or through_host(*slots)


def _direct(machine: MachineParts, src: NodeDevice, dst: NodeDevice) -> Wire | None:
    """The direct link of two accelerators of the same model; None if it doesn't join them.

    A link that joins n devices at most joins accelerators 0 to n - 1 of a node, then n to 2n - 1, and so on.
    """
    peer = src.part.peer
    if machine.peer is None or peer is None or peer.link != machine.peer.name or src.part.name != dst.part.name:
        return None
    return machine.peer.joining(peer) if src.number // peer.joins == dst.number // peer.joins else None


def slot(part: Part, connection: Connection | None) -> Wire:
    """The wire from host to device: `connection`, or else the slot that the device is made for.

    Raises ValueError if the table has no such slot.
    """
    if connection is None and part.host is None:
        raise ValueError(
            f"names no link to the host, and the table has none for {part.name}; add one, such as ', pcie4'"
        )
    return (connection or hardware.connection(str(part.host))).wire


def through_host(a: Wire, b: Wire) -> Wire:
    """Two copies one after the other, by wires `a` and `b`."""
    return Wire(
        min(a.bandwidth_bytes_per_s, b.bandwidth_bytes_per_s) // 2,
        a.latency_ns + b.latency_ns,
        max(a.overhead_ns, b.overhead_ns),
    )


def _check_peer(machine: MachineParts) -> None:
    """Raises ValueError if the link between accelerators joins no two of them."""
    if machine.peer is None:
        return
    counts = Counter(part.name for part in machine.accelerators)
    peers = {part.name: part.peer.link if part.peer else None for part in machine.accelerators}
    if not any(peers[name] == machine.peer.name and count > 1 for name, count in counts.items()):
        counted = ", ".join(f"{count}x {name} ({peers[name] or 'no direct link'})" for name, count in counts.items())
        raise ValueError(f"{machine.peer.name!r} joins no two devices here: {counted}")
