"""Clusters as JSON documents: `gnnplace.cluster` version 1 (docs/formats.md#cluster)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field

from gnnplace.cluster import (
    MAX_BYTES,
    MAX_DEVICES,
    MAX_RATE,
    MAX_TIME_NS,
    Cluster,
    ClusterError,
    Device,
    Link,
    repeated_names,
    unknown_end,
)
from gnnplace.complaints import listing
from gnnplace.formats import atomic, strict_json
from gnnplace.formats.strict_json import WHOLE, Document, Source

MAX_DOCUMENT_BYTES = 256 * 2**20

Name = Annotated[str, Field(min_length=1, max_length=1000)]
DeviceKind = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^,]+$")]
Rate = Annotated[int, Field(ge=1, le=MAX_RATE), WHOLE]
RateByDtype = Annotated[dict[Name, Rate], Field(min_length=1)]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
TimeNs = Annotated[int, Field(ge=0, le=MAX_TIME_NS)]


class DeviceDocument(Document):
    """One device of a cluster document.

    Devices that name the same `memory` share it: an op that starts while another of these devices runs one takes its
    time at the contended rate. By default a device keeps one buffer for everything it receives of a tensor. With
    `received: parts` only whole parts share a buffer; with `received: outputs` each output has its own.
    """

    name: Name
    kind: DeviceKind
    memory_bytes: Bytes
    flops_per_s: Annotated[
        Annotated[Rate, strict_json.ONE] | Annotated[RateByDtype, strict_json.MAP],
        Discriminator(strict_json.one_or_map),
    ]
    memory_bytes_per_s: Rate
    launch_ns: TimeNs = 0
    dispatch_ns: TimeNs = 0
    streams: Annotated[int, Field(ge=1, le=1024)] = 1
    memory: Name | None = None
    contended_memory_bytes_per_s: Rate | None = None
    received: Literal["parts", "outputs"] | None = None


class LinkDocument(Document):
    """One directed link of a cluster document.

    A `channel` with the name of `src`, or a `receive_channel` with the name of `dst`, is that device itself: a transfer
    takes one of its streams.
    """

    src: Name
    dst: Name
    bandwidth_bytes_per_s: Rate
    overhead_ns: TimeNs = 0
    latency_ns: TimeNs = 0
    channel: Name | None = None
    receive_channel: Name | None = None


class ClusterDocument(Document):
    """A cluster document.

    If there are several devices, each has a link, unless `isolated` is true: then some are meant to have none.
    """

    format: Literal["gnnplace.cluster"] = "gnnplace.cluster"
    version: Literal[1] = 1
    name: Name
    devices: Annotated[list[DeviceDocument], Field(min_length=1, max_length=MAX_DEVICES)]
    links: Annotated[list[LinkDocument], Field(max_length=MAX_DEVICES**2)]
    isolated: bool = False

    @classmethod
    def complaints_between(cls, value: object) -> Iterator[str]:
        """Repeated names of devices and links whose ends are not devices; nothing if a device lacks its name."""
        texts = [_text(row, "name") for row in _rows(value, "devices")]
        names = [name for name in texts if name is not None]
        if not names or len(names) < len(texts):
            return
        yield from repeated_names(names)
        for index, row in enumerate(_rows(value, "links")):
            for end in (_text(row, "src"), _text(row, "dst")):
                yield from () if end is None else unknown_end(end, f"links[{index}]", names)


def read_cluster(source: Source) -> Cluster:
    """The cluster of a JSON file (a path) or of its bytes.

    Raises ValueError (one line) for an invalid document, OSError for an unreadable file.
    """
    return strict_json.read(source, ClusterDocument, _cluster, MAX_DOCUMENT_BYTES)


def cluster_of(document: dict[str, Any]) -> Cluster:
    """The cluster of a parsed document. Raises ValueError (one line) for an invalid one."""
    return _cluster(strict_json.check(document, ClusterDocument))


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The document of a cluster, without values equal to their defaults; reading it gives the same cluster."""
    document = {
        "format": "gnnplace.cluster",
        "version": 1,
        "name": cluster.name,
        "devices": [_device(device) for device in cluster.devices],
        "links": [LinkDocument.model_validate(vars(link)).model_dump(exclude_defaults=True) for link in cluster.links],
    }
    return document | {"isolated": True} if cluster.unlinked else document


def write_cluster(path: str | os.PathLike[str], cluster: Cluster) -> None:
    """Writes the document of a cluster atomically, with one device or link a line."""
    document = cluster_document(cluster)
    rows = {key: ",\n".join(f"  {json.dumps(row)}" for row in document.pop(key)) for key in ("devices", "links")}
    text = json.dumps(document)[:-1] + "".join(f',\n "{key}": [\n{block}]' for key, block in rows.items()) + "}\n"
    atomic.write_text(Path(path), text)


def _device(device: Device) -> dict[str, Any]:
    rates = device.flops_per_s if isinstance(device.flops_per_s, int) else dict(device.flops_per_s)
    return DeviceDocument.model_validate(vars(device) | {"flops_per_s": rates}).model_dump(exclude_defaults=True)


def _cluster(document: ClusterDocument) -> Cluster:
    devices = tuple(Device(**device.model_dump()) for device in document.devices)
    cluster = Cluster(document.name, devices, tuple(Link(**link.model_dump()) for link in document.links))
    if cluster.unlinked and not document.isolated:
        raise ClusterError(
            f'links: none leads from or to {listing(cluster.unlinked)}; if that is meant, add "isolated": true'
        )
    return cluster


def _rows(value: object, key: str) -> list[Any]:
    rows = value.get(key) if isinstance(value, dict) else None
    return rows if isinstance(rows, list) else []


def _text(row: object, key: str) -> str | None:
    text = row.get(key) if isinstance(row, dict) else None
    return text if isinstance(text, str) else None
