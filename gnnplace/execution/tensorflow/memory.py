"""What the allocator of a core is asked for, as TensorFlow's own profiler says it.

The allocator's statistics count what it gives, which may be more: a free piece of less than twice the size is given
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnplace.execution.allocations import Allocation, held

ALLOCATED, FREED = "MemoryAllocation", "MemoryDeallocation"  # events of the profiler


def begin(folder: str) -> int:
    """Has the profiler of this process write into a folder; returns the bytes in use on its core."""
    from tensorflow.config.experimental import get_memory_info
    from tensorflow.profiler.experimental import ProfilerOptions, start

    start(folder, ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0))
    in_use: int = get_memory_info("CPU:0")["current"]
    return in_use


def end() -> None:
    """Ends what `begin` began."""
    from tensorflow.profiler.experimental import stop

    stop()


def recorded(folder: Path, before_bytes: int) -> list[tuple[int, int]]:
    """The bytes that a core's tensors hold after each event, as `(time, bytes)` by the host's clock.

    Tensors below 256 KiB are left out, because another allocator holds them.
    """
    (written,) = folder.rglob("*.xplane.pb")
    return [(0, before_bytes), *((when, before_bytes + more) for when, more in held(allocations(written.read_bytes())))]


def allocations(profile: bytes) -> Iterator[Allocation]:
    """The allocations and frees in a profile (of the protocol buffer `XSpace`).

    A tensor that was allocated before the profile began is freed with all bytes that the allocator gave it, as in the
    allocator's statistics.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    addresses: set[int] = set()
    for when, name, stats in sorted(_events(xplane_pb2.XSpace.FromString(profile)), key=lambda event: event[0]):
        if name == ALLOCATED:
            addresses.add(stats["addr"])
            yield when, stats["requested_bytes"]
        else:
            yield when, -stats["requested_bytes" if stats["addr"] in addresses else "allocation_bytes"]
            addresses.discard(stats["addr"])


def _events(space: Any) -> Iterator[tuple[int, str, dict[str, int]]]:
    """The time, name and statistics of each allocation and free."""
    began_ns = next(
        stats["profile_start_time"] for plane in space.planes if "profile_start_time" in (stats := _stats(plane, plane))
    )
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                if (name := plane.event_metadata[event.metadata_id].name) in (ALLOCATED, FREED):
                    yield began_ns + line.timestamp_ns + event.offset_ps // 1000, name, _stats(plane, event)


def _stats(plane: Any, of: Any) -> dict[str, int]:
    return {plane.stat_metadata[stat.metadata_id].name: stat.int64_value or stat.uint64_value for stat in of.stats}
