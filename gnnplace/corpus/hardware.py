"""The hardware table `hardware.json`: devices and links with their published rates, from which clusters are described.

Rates of accelerators are the vendor's dense peaks: float32 without tensor cores, float16 and bfloat16 on tensor cores
with float32 accumulation. `rates` tells what kind of rates a row has: "published" peaks, "assumed" ones, or "achieved",
which are measured. `source` is the document that a row is taken from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from gnnplace.cluster import Device
from gnnplace.formats import strict_json

PATH = Path(__file__).with_name("hardware.json")
MAX_BYTES = 2**20
GIGA, MIB = 10**9, 2**20

Gigas = Annotated[float, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Nanoseconds = Annotated[int, Field(ge=0)]
Rates = Literal["published", "assumed", "achieved"]


@dataclass(frozen=True)
class Wire:
    """The figures of a directed link."""

    bandwidth_bytes_per_s: int
    latency_ns: int
    overhead_ns: int = 2000


class Peer(strict_json.Document):
    """The direct link between devices of one model: its name, its rate for a pair in one direction, and its reach."""

    link: Name
    gigabytes_per_s: Gigas
    joins: Annotated[int, Field(ge=2)]  # at most this many devices


class Part(strict_json.Document):
    """A device of the table. A CPU is a host.

    `gflops_per_s` is a rate by dtype; a single rate holds for every dtype. `memory_gb` is the memory on the label,
    `usable_mib` what error correction and the driver leave of it (assumed). `host` is the slot that the device is made
    for. `reported` are the names that drivers give the device.
    """

    name: Name
    kind: Literal["cpu", "gpu", "tpu"]
    gflops_per_s: dict[str, Annotated[int, Field(ge=1)]]
    tf32_gflops_per_s: Annotated[int, Field(ge=1)] | None = None
    memory_gb: Annotated[int, Field(ge=1)]
    usable_mib: Annotated[int, Field(ge=1)]
    gigabytes_per_s: Gigas
    launch_ns: Nanoseconds
    dispatch_ns: Nanoseconds
    host: Name | None = None
    peer: Peer | None = None
    reported: tuple[str, ...] = Field(default=(), strict=False)
    rates: Rates
    source: str

    @property
    def usable_bytes(self) -> int:
        return self.usable_mib * MIB

    def device(self, name: str, tf32: bool = False) -> Device:
        """The device of a cluster. With `tf32`, float32 has the rate of tensor cores.

        Raises ValueError if the table has no such rate.
        """
        rates = {dtype: rate * GIGA for dtype, rate in self.gflops_per_s.items()}
        if tf32:
            if self.tf32_gflops_per_s is None:
                raise ValueError(f"'tf32': {self.name} has no such rate in the table")
            rates["float32"] = self.tf32_gflops_per_s * GIGA
        flops = rates if len(rates) > 1 else next(iter(rates.values()))
        traffic = round(self.gigabytes_per_s * GIGA)
        return Device(
            name, self.kind, self.usable_bytes, flops, traffic, launch_ns=self.launch_ns, dispatch_ns=self.dispatch_ns
        )


class Connection(strict_json.Document):
    """A link of the table: between host and device, between devices ("peer") or between nodes.

    `gigabytes_per_s` is the rate in one direction; if it is assumed, `published_gigabytes_per_s` is the peak. The rate
    of a "peer" link stands with the device (`Peer`).
    """

    name: Name
    role: Literal["host", "peer", "network"]
    gigabytes_per_s: Gigas | None = None
    published_gigabytes_per_s: Gigas | None = None
    latency_ns: Nanoseconds
    overhead_ns: Nanoseconds
    rates: Rates
    source: str

    @property
    def wire(self) -> Wire:
        """Rate and delays of a link that is no "peer" link."""
        assert self.gigabytes_per_s is not None
        return Wire(round(self.gigabytes_per_s * GIGA), self.latency_ns, self.overhead_ns)

    def joining(self, peer: Peer) -> Wire:
        """Rate and delays between devices that this link and `peer` join."""
        return Wire(round(peer.gigabytes_per_s * GIGA), self.latency_ns, self.overhead_ns)


class Hardware(strict_json.Document):
    """The table."""

    devices: list[Part]
    links: list[Connection]


Row = TypeVar("Row", Part, Connection)


@cache
def hardware() -> Hardware:
    """The table that comes with the package."""
    return strict_json.read(PATH, Hardware, lambda table: table, MAX_BYTES)


def part(name: str) -> Part:
    """The device of the table called `name`, in any spelling. Raises ValueError (one line) with the nearest name.

    >>> part("RTX 4090").gflops_per_s["float32"]
    82600
    """
    return _named("device of the table", name, hardware().devices)


def connection(name: str) -> Connection:
    """The link of the table called `name`, in any spelling. Raises ValueError (one line) with the nearest name.

    >>> connection("PCIe 4").wire.bandwidth_bytes_per_s
    25000000000
    """
    return _named("link of the table", name, hardware().links)


def is_part(name: str) -> bool:
    """Whether the table has a device called `name`."""
    return plain(name) in {plain(row.name) for row in hardware().devices}


def reported(name: str) -> Part | None:
    """The device that drivers call `name`, or None.

    >>> reported("NVIDIA H100 80GB HBM3").name
    'h100-sxm'
    """
    return next((row for row in hardware().devices if name in row.reported), None)


def plain(name: str) -> str:
    """A name without case, spaces and hyphens: `RTX 4090` is `rtx-4090`."""
    return re.sub(r"[\s_-]", "", name.casefold())


def names(rows: Iterable[Part] | Iterable[Connection]) -> tuple[str, ...]:
    """The names of rows, in their order."""
    return tuple(row.name for row in rows)


def _named(what: str, name: str, rows: Sequence[Row]) -> Row:
    for row in rows:
        if plain(row.name) == plain(name):
            return row
    raise ValueError(f"{strict_json.unknown(what, name, names(rows))}; `gnnplace clusters list` shows them")
