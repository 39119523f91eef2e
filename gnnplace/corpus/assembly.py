"""A cluster of parts of the table of hardware: equal nodes of a host and its accelerators, every pair of devices
linked.

Host and accelerator are linked by PCIe. Two accelerators of a node are linked directly, at the rate that the table
gives for a pair, where they are alike, have the named link and it joins them; else by PCIe through the host: two copies
in turn, so half of the slower rate and both latencies. Devices of different nodes are linked by the network, with one
engine for all that a node sends.
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import NamedTuple

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import hardware
from gnnplace.corpus.hardware import Connection, Part, Wire


class MachineParts(NamedTuple):
    """Equal nodes.

    `slot` joins host and accelerators (None: the one that each is made for), `peer` accelerators, `network` nodes.
    """

    nodes: int
    host: Part
    accelerators: tuple[Part, ...]
    slot: Connection | None = None
    peer: Connection | None = None
    network: Connection | None = None
    tf32: bool = False


class Placed(NamedTuple):
    """A device of the cluster: its node, its part, and its number among the same parts of its node."""

    device: Device
    node: int
    part: Part
    number: int


def assembled(name: str, machine: MachineParts) -> Cluster:
    """The cluster of a machine: hosts first, then accelerators, numbered by kind.

    Raises ValueError where a link joins nothing.
    """
    _check_peer(machine)
    placed = _placed(machine)
    links = tuple(_link(machine, src, dst) for src, dst in permutations(placed, 2))
    return Cluster(name, tuple(each.device for each in placed), links)


def _placed(machine: MachineParts) -> list[Placed]:
    hosts = [Placed(machine.host.device(f"cpu:{node}"), node, machine.host, 0) for node in range(machine.nodes)]
    accelerators, kinds = [], Counter[str]()
    for node in range(machine.nodes):
        numbers = Counter[str]()
        for part in machine.accelerators:
            device = part.device(f"{part.kind}:{kinds[part.kind]}", machine.tf32)
            accelerators.append(Placed(device, node, part, numbers[part.name]))
            kinds[part.kind] += 1
            numbers[part.name] += 1
    return [*hosts, *accelerators]


def _link(machine: MachineParts, src: Placed, dst: Placed) -> Link:
    wire, channel = _wire(machine, src, dst), None
    if src.node != dst.node:
        channel = f"network:{src.node}"
    return linked(src.device.name, dst.device.name, wire, channel)


def linked(src: str, dst: str, wire: Wire, channel: str | None = None) -> Link:
    """A link between devices by a wire."""
    return Link(
        src, dst, wire.bandwidth_bytes_per_s, overhead_ns=wire.overhead_ns, latency_ns=wire.latency_ns, channel=channel
    )


def _wire(machine: MachineParts, src: Placed, dst: Placed) -> Wire:
    if src.node != dst.node:
        assert machine.network is not None
        return machine.network.wire
    slots = [slot(each.part, machine.slot) for each in (src, dst) if each.part.kind != "cpu"]
    if len(slots) == 1:
        return slots[0]
    return _direct(machine, src, dst) or through_host(*slots)


def _direct(machine: MachineParts, src: Placed, dst: Placed) -> Wire | None:
    """The direct link of two like accelerators, which it joins in islands
    as they are numbered; None where it joins them not.
    """
    peer = src.part.peer
    if machine.peer is None or peer is None or peer.link != machine.peer.name or src.part.name != dst.part.name:
        return None
    return machine.peer.joining(peer) if src.number // peer.joins == dst.number // peer.joins else None


def slot(part: Part, named: Connection | None) -> Wire:
    """Host to device: by the named slot, or the one that the device is made for.

    Raises ValueError where the table knows none.
    """
    if named is None and part.host is None:
        raise ValueError(
            f"names no link to the host, and the table has none for {part.name}; add one, such as ', pcie4'"
        )
    return (named or hardware.connection(str(part.host))).wire


def through_host(a: Wire, b: Wire) -> Wire:
    """Two copies in turn."""
    return Wire(
        min(a.bandwidth_bytes_per_s, b.bandwidth_bytes_per_s) // 2,
        a.latency_ns + b.latency_ns,
        max(a.overhead_ns, b.overhead_ns),
    )


def _check_peer(machine: MachineParts) -> None:
    if machine.peer is None:
        return
    counts = Counter(part.name for part in machine.accelerators)
    peers = {part.name: part.peer.link if part.peer else None for part in machine.accelerators}
    if not any(peers[name] == machine.peer.name and count > 1 for name, count in counts.items()):
        counted = ", ".join(f"{count}x {name} ({peers[name] or 'no direct link'})" for name, count in counts.items())
        raise ValueError(f"{machine.peer.name!r} joins no two devices here: {counted}")
