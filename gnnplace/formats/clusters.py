"""Clusters as JSON documents: `gnnplace.cluster` version 1 (docs/formats.md#cluster)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field

from gnnplace.cluster import MAX_BYTES, MAX_DEVICES, MAX_RATE, MAX_TIME_NS, Cluster, Device, Link
from gnnplace.formats import strict_json
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

    Devices that name the same `memory` share it: an op that starts while another of them runs one takes its time at the contended rate.
    What arrives shares a buffer with all that comes of its tensor; if `received` is `parts`, only what is all of the tensor does, if it is
    `outputs`, nothing.
    """

    name: Name
    kind: DeviceKind
    memory_bytes: Bytes
    flops_per_s: Annotated[
        Annotated[Rate, strict_json.ONE] | Annotated[RateByDtype, strict_json.MAP], Discriminator(strict_json.one_or_map)
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

    A `channel` named as `src`, or a `receive_channel` named as `dst`, is that device: a transfer takes one of its streams.
    """

    src: Name
    dst: Name
    bandwidth_bytes_per_s: Rate
    overhead_ns: TimeNs = 0
    latency_ns: TimeNs = 0
    channel: Name | None = None
    receive_channel: Name | None = None


class ClusterDocument(Document):
    """A cluster document."""

    format: Literal["gnnplace.cluster"] = "gnnplace.cluster"
    version: Literal[1] = 1
    name: Name
    devices: Annotated[list[DeviceDocument], Field(min_length=1, max_length=MAX_DEVICES)]
    links: Annotated[list[LinkDocument], Field(max_length=MAX_DEVICES**2)]


def read_cluster(source: Source) -> Cluster:
    """The cluster of a JSON file (a path) or of its bytes. Raises ValueError (one line) for a bad one, OSError for an unreadable file."""
    return strict_json.read(source, ClusterDocument, _cluster, MAX_DOCUMENT_BYTES)


def cluster_of(document: dict[str, Any]) -> Cluster:
    """The cluster of a parsed document. Raises ValueError (one line) for a bad one."""
    return _cluster(strict_json.check(document, ClusterDocument))


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The document of a cluster, without what is left at its default; reading it gives the same cluster."""
    return {
        "format": "gnnplace.cluster",
        "version": 1,
        "name": cluster.name,
        "devices": [_device(device) for device in cluster.devices],
        "links": [LinkDocument.model_validate(vars(link)).model_dump(exclude_defaults=True) for link in cluster.links],
    }


def _device(device: Device) -> dict[str, Any]:
    rates = device.flops_per_s if isinstance(device.flops_per_s, int) else dict(device.flops_per_s)
    return DeviceDocument.model_validate(vars(device) | {"flops_per_s": rates}).model_dump(exclude_defaults=True)


def _cluster(document: ClusterDocument) -> Cluster:
    devices = tuple(Device(**device.model_dump()) for device in document.devices)
    return Cluster(document.name, devices, tuple(Link(**link.model_dump()) for link in document.links))
