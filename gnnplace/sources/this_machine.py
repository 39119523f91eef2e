"""`here`: this machine as a cluster without measuring anything. `gnnplace calibrate` measures it instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from gnnplace.choices import HERE
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import hardware
from gnnplace.corpus.assembly import slot, through_host
from gnnplace.corpus.hardware import Part
from gnnplace.execution import machine
from gnnplace.execution.machine import Gpu


@cache
def here() -> Cluster:
    """The GPUs that PyTorch sees, else those that TensorFlow sees, and a core; where there are none, the cores of this machine.

    Raises ValueError (one line) where the driver does not answer, and for a GPU that the table of hardware lacks.
    """
    found = machine.gpus() or tuple(Gpu(name, _part(name).usable_bytes) for name in machine.tensorflow_gpus())
    return with_rates(found) if found else machine.cores(HERE)


def with_rates(found: Sequence[Gpu]) -> Cluster:
    """A core and these GPUs: their memory as the driver reports it, their rates as the table says.

    Links are those of the slots that the GPUs are made for; two GPUs are linked through the host: what joins them directly is not asked.
    """
    template, parts = machine.with_gpus(HERE, found), {f"gpu:{place}": _part(gpu.name) for place, gpu in enumerate(found)}
    devices = (_rated(device, parts[device.name]) if device.name in parts else device for device in template.devices)
    return replace(template, devices=tuple(devices), links=tuple(_wired(link, parts) for link in template.links))


def _part(name: str) -> Part:
    if (found := hardware.reported(name)) is None:
        raise ValueError(f"here: {name!r} is no GPU of the table of hardware; `gnnplace calibrate` measures it")
    return found


def _rated(device: Device, part: Part) -> Device:
    rated = part.device(device.name)
    return replace(device, flops_per_s=rated.flops_per_s, memory_bytes_per_s=rated.memory_bytes_per_s)


def _wired(link: Link, parts: dict[str, Part]) -> Link:
    slots = [slot(parts[end], None) for end in (link.src, link.dst) if end in parts]
    wire = slots[0] if len(slots) == 1 else through_host(*slots)
    return replace(link, bandwidth_bytes_per_s=wire.bandwidth_bytes_per_s, overhead_ns=wire.overhead_ns, latency_ns=wire.latency_ns)
