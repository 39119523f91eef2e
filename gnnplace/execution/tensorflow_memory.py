"""What the allocator of this process' core is asked for, as TensorFlow's own profiler says it.

The allocator's statistics count what it gives, which may be more: a free piece of less than twice the size is given whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from gnnplace.execution.allocations import Allocation, held

ALLOCATED, FREED = "MemoryAllocation", "MemoryDeallocation"  # events of the profiler


class Peak(NamedTuple):
    """What a core held before a step, and the most that it held in it; `when` by the host's clock."""

    before_bytes: int
    most_bytes: int
    when_ns: int


@dataclass(frozen=True)
class Recording:
    """The profile of this process from `begin` to `end`; there is one at a time."""

    folder: TemporaryDirectory[str]
    bytes_before: int  # in use when it began

    @classmethod
    def begin(cls) -> Recording:
        """Starts the profiler."""
        from tensorflow.config.experimental import get_memory_info
        from tensorflow.profiler.experimental import ProfilerOptions, start

        folder = TemporaryDirectory()
        start(folder.name, ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0))
        return cls(folder, get_memory_info("CPU:0")["current"])

    def end(self) -> Peak:
        """What the core's tensors took at once, those below 256 KiB aside, which another allocator holds."""
        from tensorflow.profiler.experimental import stop

        with self.folder as folder:
            stop()
            (written,) = Path(folder).rglob("*.xplane.pb")
            known = held(allocations(written.read_bytes()))
        more, when = max([(0, 0), *((now, when) for when, now in known)])
        return Peak(self.bytes_before, self.bytes_before + more, when)


def allocations(profile: bytes) -> Iterator[Allocation]:
    """What a profile (of the protocol buffer `XSpace`) says was allocated and freed.

    What was allocated before it began is freed as it counts in statistics, with all that the allocator gave.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    known: set[int] = set()
    for when, name, found in sorted(_events(xplane_pb2.XSpace.FromString(profile)), key=lambda event: event[0]):
        if name == ALLOCATED:
            known.add(found["addr"])
            yield when, found["requested_bytes"]
        else:
            yield when, -found["requested_bytes" if found["addr"] in known else "allocation_bytes"]
            known.discard(found["addr"])


def _events(space: Any) -> Iterator[tuple[int, str, dict[str, int]]]:
    """When, which, and the numbers that come with it."""
    began_ns = next(stats["profile_start_time"] for plane in space.planes if "profile_start_time" in (stats := _stats(plane, plane)))
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                if (name := plane.event_metadata[event.metadata_id].name) in (ALLOCATED, FREED):
                    yield began_ns + line.timestamp_ns + event.offset_ps // 1000, name, _stats(plane, event)


def _stats(plane: Any, of: Any) -> dict[str, int]:
    return {plane.stat_metadata[stat.metadata_id].name: stat.int64_value or stat.uint64_value for stat in of.stats}
