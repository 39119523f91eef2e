"""The machine: devices, the links between them, and the channels that links share.

A channel is a copy engine, or a device that copies by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.complaints import listing, one_line

MAX_DEVICES = 1024
MAX_RATE = 2**62
MAX_BYTES = 2**60
MAX_TIME_NS = 2**50
NO_LINK = -1
NO_CHANNEL = -1
NO_MEMORY = -1
RECEIVED = (None, "parts", "outputs")
LATER_FIELDS = ("memory", "contended_memory_bytes_per_s", "received", "receive_channel")


class ClusterError(ValueError):
    """An invalid cluster. The message is one line with place, value and rule of every error."""


@dataclass(frozen=True)
class Device:
    """A processor. `flops_per_s` is one rate, or a rate per dtype; a dtype that is not listed has the lowest rate.

    Devices that name the same `memory` share it. `contended_memory_bytes_per_s` is the rate of this device while
    another one of them runs an op (None: the same as alone). By default a device keeps one buffer for everything it
    receives of a tensor. With `received: parts` only whole parts share a buffer; with `received: outputs` each output
    has its own.
    """

    name: str
    kind: str
    memory_bytes: int
    flops_per_s: int | Mapping[str, int]
    memory_bytes_per_s: int
    launch_ns: int = 0
    dispatch_ns: int = 0
    streams: int = 1
    memory: str | None = None
    contended_memory_bytes_per_s: int | None = None
    received: str | None = None

    def rate(self, dtype: str | None) -> int:
        """Flops per second for a dtype; the lowest rate if the dtype is not listed."""
        if isinstance(self.flops_per_s, int):
            return self.flops_per_s
        lowest = min(self.flops_per_s.values())
        return lowest if dtype is None else self.flops_per_s.get(dtype, lowest)


@dataclass(frozen=True)
class Link:
    """A directed connection from device `src` to device `dst`.

    `channel` names its copy engine; None: the one shared by all links out of `src`. A transfer that has left its
    channel occupies the `receive_channel`, if there is one, for the same time again before it arrives. A channel with
    the name of `src`, or a receive channel with the name of `dst`, is the device itself: it has no copy engine, so a
    transfer takes one of its streams.
    """

    src: str
    dst: str
    bandwidth_bytes_per_s: int
    overhead_ns: int = 0
    latency_ns: int = 0
    channel: str | None = None
    receive_channel: str | None = None


@dataclass(frozen=True)
class Cluster:
    """Devices and links in document order; the order of devices breaks ties.

    Raises ClusterError with everything that is wrong.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if complaints := one_line(self._complaints()):
            raise ClusterError(complaints)

    def _complaints(self) -> Iterator[str]:
        if not 1 <= len(self.devices) <= MAX_DEVICES:
            yield f"devices: {len(self.devices)} is not between 1 and {MAX_DEVICES}"
            return
        yield from repeated_names(self.device_names)
        for index, device in enumerate(self.devices):
            yield from _device_complaints(device, f"devices[{index}]")
        pairs = set[tuple[str, str]]()
        for index, link in enumerate(self.links):
            yield from _link_complaints(link, f"links[{index}]", self.device_names)
            if (link.src, link.dst) in pairs:
                yield (
                    f"links[{index}]: a second link from {link.src!r} to {link.dst!r}; at most one for an ordered pair"
                )
            pairs.add((link.src, link.dst))

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @cached_property
    def device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    @property
    def unlinked(self) -> tuple[str, ...]:
        """The devices without a link, in a cluster of several devices."""
        ends = {end for link in self.links for end in (link.src, link.dst)}
        return tuple(name for name in self.device_names if name not in ends) if self.num_devices > 1 else ()

    @cached_property
    def memory_bytes(self) -> Int64[np.ndarray, " devices"]:
        return np.array([device.memory_bytes for device in self.devices], dtype=np.int64)

    @cached_property
    def streams(self) -> Int64[np.ndarray, " devices"]:
        return np.array([device.streams for device in self.devices], dtype=np.int64)

    @cached_property
    def accelerators(self) -> Int64[np.ndarray, " accelerators"]:
        """The indices of the devices that are not CPUs; all devices if there are only CPUs."""
        others = [index for index, device in enumerate(self.devices) if device.kind != "cpu"]
        return np.array(others or range(self.num_devices), dtype=np.int64)

    @cached_property
    def link_index(self) -> Int32[np.ndarray, "devices devices"]:
        """Entry [a, b] is the number of the link from device a to device b, or `NO_LINK`."""
        table = np.full((self.num_devices, self.num_devices), NO_LINK, dtype=np.int32)
        for index, link in enumerate(self.links):
            table[self.device_names.index(link.src), self.device_names.index(link.dst)] = index
        return table

    @cached_property
    def link_channel(self) -> Int32[np.ndarray, " links"]:
        """The channel of each link, an index into `channels`."""
        return np.array([self.channels.index(_channel(link)) for link in self.links], dtype=np.int32)

    @cached_property
    def link_receive_channel(self) -> Int32[np.ndarray, " links"]:
        """The receive channel of each link, an index into `channels`, or `NO_CHANNEL`."""
        named = [link.receive_channel for link in self.links]
        return np.array(
            [NO_CHANNEL if name is None else self.channels.index(("channel", name)) for name in named], dtype=np.int32
        )

    @cached_property
    def channels(self) -> tuple[tuple[str, str], ...]:
        """The distinct channels in order of first use, receive channels last.

        A channel is ("channel", name) if it is named, else ("device", source).
        """
        receiving = [("channel", link.receive_channel) for link in self.links if link.receive_channel is not None]
        return tuple(dict.fromkeys([*map(_channel, self.links), *receiving]))

    @property
    def num_channels(self) -> int:
        return len(self.channels)

    @cached_property
    def device_channel(self) -> Int32[np.ndarray, " devices"]:
        """The channel that is the device itself, or `NO_CHANNEL` for a device that does not copy by itself."""
        keys = [("channel", name) for name in self.device_names]
        return np.array(
            [self.channels.index(name) if name in self.channels else NO_CHANNEL for name in keys], dtype=np.int32
        )

    @cached_property
    def device_memory(self) -> Int32[np.ndarray, " devices"]:
        """The shared memory of each device, numbered in order of first use, or `NO_MEMORY`."""
        named = list(dict.fromkeys(device.memory for device in self.devices if device.memory is not None))
        return np.array(
            [NO_MEMORY if device.memory is None else named.index(device.memory) for device in self.devices],
            dtype=np.int32,
        )

    @cached_property
    def device_received(self) -> Int32[np.ndarray, " devices"]:
        """The field `received` of each device, an index into `RECEIVED`."""
        return np.array([RECEIVED.index(device.received) for device in self.devices], dtype=np.int32)

    @cached_property
    def link_latency_ns(self) -> Int64[np.ndarray, " links"]:
        return np.array([link.latency_ns for link in self.links], dtype=np.int64)

    @cached_property
    def sha256(self) -> str:
        content = (self.name, [_identity(device) for device in self.devices], [_identity(link) for link in self.links])
        return hashlib.sha256(repr(content).encode()).hexdigest()


def _identity(record: Device | Link) -> tuple[object, ...]:
    """The values of all fields, without unset `LATER_FIELDS`, so that older clusters keep their checksums."""
    named = zip(vars(record), astuple(record), strict=True)
    return tuple(value for name, value in named if value is not None or name not in LATER_FIELDS)


def _channel(link: Link) -> tuple[str, str]:
    return ("device", link.src) if link.channel is None else ("channel", link.channel)


def repeated_names(names: Sequence[str]) -> Iterator[str]:
    """Complaints about repeated names of devices."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield f"devices[{index}].name: {name!r} is not unique"


def unknown_end(end: str, place: str, names: Sequence[str]) -> Iterator[str]:
    """A complaint if an end of the link at `place` is none of the devices `names`."""
    if end not in names:
        yield f"{place}: {end!r} is not a device; devices are {listing(names)}"


def _device_complaints(device: Device, place: str) -> Iterator[str]:
    rates = {"": device.flops_per_s} if isinstance(device.flops_per_s, int) else device.flops_per_s
    if not rates:
        yield f"{place}.flops_per_s: an empty map gives no rate"
    if device.received not in RECEIVED:
        yield f"{place}.received: {device.received!r} is neither 'parts' nor 'outputs'"
    ranges = [(f"flops_per_s{f'[{dtype!r}]' if dtype else ''}", rate, 1, MAX_RATE) for dtype, rate in rates.items()]
    ranges += [
        ("memory_bytes_per_s", device.memory_bytes_per_s, 1, MAX_RATE),
        ("memory_bytes", device.memory_bytes, 0, MAX_BYTES),
        ("launch_ns", device.launch_ns, 0, MAX_TIME_NS),
        ("dispatch_ns", device.dispatch_ns, 0, MAX_TIME_NS),
        ("streams", device.streams, 1, 1024),
    ]
    if device.contended_memory_bytes_per_s is not None:
        ranges.append(
            ("contended_memory_bytes_per_s", device.contended_memory_bytes_per_s, 1, device.memory_bytes_per_s)
        )
    yield from _out_of_range(ranges, place)


def _link_complaints(link: Link, place: str, names: Sequence[str]) -> Iterator[str]:
    for end in (link.src, link.dst):
        yield from unknown_end(end, place, names)
    if link.src == link.dst:
        yield f"{place}: a link from {link.src!r} to itself"
    for column, end, device in (("channel", "source", link.src), ("receive_channel", "destination", link.dst)):
        name = getattr(link, column)
        if name in names and name != device:
            allowed = f"a channel needs its own, or that of the link's {end} {device!r}"
            yield f"{place}.{column}: {name!r} is the name of a device; {allowed}"
    ranges = [
        ("bandwidth_bytes_per_s", link.bandwidth_bytes_per_s, 1, MAX_RATE),
        ("overhead_ns", link.overhead_ns, 0, MAX_TIME_NS),
        ("latency_ns", link.latency_ns, 0, MAX_TIME_NS),
    ]
    yield from _out_of_range(ranges, place)


def _out_of_range(ranges: list[tuple[str, int, int, int]], place: str) -> Iterator[str]:
    for column, value, low, high in ranges:
        if not low <= value <= high:
            yield f"{place}.{column}: {value} is not between {low} and {high}"
