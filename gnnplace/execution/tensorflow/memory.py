"""The bytes that tensors request from the allocator of a core, by TensorFlow's own profiler.

The allocator's statistics count the bytes that it gives, which may be more: it gives a free piece of less than twice
the requested size whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnnplace.execution.workload import Allocation, held_bytes

ALLOCATED, FREED = "MemoryAllocation", "MemoryDeallocation"  # events of the profiler


def begin(folder: str) -> int:
    """Starts the profiler of this process, which writes into a folder. Returns the bytes in use on its core."""
    from tensorflow.config.experimental import get_memory_info
    from tensorflow.profiler.experimental import ProfilerOptions, start

    start(folder, ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0))
    in_use: int = get_memory_info("CPU:0")["current"]
    return in_use


def end() -> None:
    """Stops the profiler."""
    from tensorflow.profiler.experimental import stop

    stop()


def recorded(folder: Path, before_bytes: int) -> list[tuple[int, int]]:
    """The bytes that a core's tensors hold after each event, as `(time, bytes)` by the host's clock.

    Tensors below 256 KiB are left out, because another allocator holds them.
    """
    (profile,) = folder.rglob("*.xplane.pb")
    changes = held_bytes(allocations(profile.read_bytes()))
    return [(0, before_bytes), *((time_ns, before_bytes + change) for time_ns, change in changes)]


def allocations(profile: bytes) -> Iterator[Allocation]:
    """The allocations and frees in a profile (of the protocol buffer `XSpace`).

    The free of a tensor that was allocated before the profile began counts all bytes that the allocator gave it, as in
    the allocator's statistics.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    addresses: set[int] = set()
    for time_ns, name, stats in sorted(_events(xplane_pb2.XSpace.FromString(profile)), key=lambda event: event[0]):
        if name == ALLOCATED:
            addresses.add(stats["addr"])
            yield time_ns, stats["requested_bytes"]
        else:
            yield time_ns, -stats["requested_bytes" if stats["addr"] in addresses else "allocation_bytes"]
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


def _stats(plane: Any, holder: Any) -> dict[str, int]:
    """The statistics of an event, or of the plane itself, by name."""
    return {plane.stat_metadata[stat.metadata_id].name: stat.int64_value or stat.uint64_value for stat in holder.stats}
