"""This machine as a cluster: its GPUs and one CPU device, or without GPUs one CPU device for each usable core.

The rates are placeholders that a calibration replaces. A CPU device copies its own transfers, as the executors do. Its
memory is an equal share of the machine's. The driver reports the memory of a GPU. `here` takes the rates of GPUs from
the table of hardware.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from gnnplace.choices import HERE
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import hardware
from gnnplace.corpus.assembly import slot, through_host
from gnnplace.corpus.hardware import Part
from gnnplace.isolation import python
from gnnplace.isolation.worker import usable_cores

GIGA = 10**9
DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
LIMIT_S = 120  # for importing a framework and querying the driver, which may hang

_WITH_PARENT = "from gnnplace.isolation.linux import die_with_parent; die_with_parent({})\n"
_ASK = """
import json, torch
gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
print(json.dumps([[gpu.name, gpu.total_memory] for gpu in gpus]))
"""
_ASK_TENSORFLOW = """
import json, tensorflow
gpus = map(tensorflow.config.experimental.get_device_details, tensorflow.config.list_physical_devices("GPU"))
print(json.dumps([gpu["device_name"] for gpu in gpus]))
"""


class Gpu(NamedTuple):
    """A GPU of this machine."""

    name: str
    memory_bytes: int


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that PyTorch sees.

    A child process queries the driver, because CUDA does not work in forks of a process that has initialised it. Raises
    ValueError if the query fails or takes more than `LIMIT_S` seconds.
    """
    return tuple(Gpu(*fields) for fields in _query("PyTorch", _ASK))


def tensorflow_gpus() -> tuple[str, ...]:
    """The names of the GPUs that TensorFlow sees; it does not report their memory.

    Without a GPU's driver there is no query. Raises ValueError as `gpus` does.
    """
    if importlib.util.find_spec("tensorflow") is None or not any(Path(driver).exists() for driver in DRIVERS):
        return ()
    return tuple(_query("TensorFlow", _ASK_TENSORFLOW))


def _query(framework: str, program: str) -> list[Any]:
    """The list that a program prints as JSON in a child process."""
    try:
        process = subprocess.run(
            python.command("-c", _WITH_PARENT.format(os.getpid()) + program),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env=python.environment(),
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{framework} can't list this machine's GPUs: no answer after {LIMIT_S} s") from None
    if process.returncode:
        raise ValueError(f"{framework} can't list this machine's GPUs: {process.stderr.strip().rpartition(chr(10))[2]}")
    return json.loads(process.stdout)


def machine(name: str, receive: bool = False) -> Cluster:
    """The cluster of this machine: its GPUs and one CPU device, or without GPUs its cores; `receive` as in `cores`."""
    accelerators = gpus()
    return with_gpus(name, accelerators) if accelerators else cores(name, receive=receive)


def with_gpus(name: str, accelerators: Sequence[Gpu]) -> Cluster:
    """A cluster of one CPU device and these GPUs; each GPU has one copy engine for all its outgoing transfers."""
    devices = (_core(0), *(_gpu(number, gpu) for number, gpu in enumerate(accelerators)))
    pairs = permutations(devices, 2)
    links = (
        Link(a.name, b.name, 10 * GIGA, overhead_ns=10_000, channel=a.name if a.kind == "cpu" else None)
        for a, b in pairs
    )
    return Cluster(name, devices, tuple(links))


def cores(name: str, count: int | None = None, receive: bool = False) -> Cluster:
    """A cluster of the first `count` usable cores (default: all). Raises ValueError if fewer cores are usable.

    With `receive` each core also copies incoming transfers, each output into a buffer of its own, as TensorFlow does.
    """
    usable = len(usable_cores())
    if count is not None and not 1 <= count <= usable:
        raise ValueError(f"cores: {count} is not between 1 and the {usable} cores that this process may use")
    devices = tuple(replace(_core(core), received="outputs" if receive else "parts") for core in range(count or usable))
    pairs = ((src.name, dst.name) for src, dst in permutations(devices, 2))
    links = (
        Link(*pair, 5 * GIGA, overhead_ns=5000, channel=pair[0], receive_channel=pair[1] if receive else None)
        for pair in pairs
    )
    return Cluster(name, devices, tuple(links))


def _core(core: int) -> Device:
    share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // len(usable_cores())
    return Device(f"cpu:{core}", "cpu", share, 50 * GIGA, 10 * GIGA, launch_ns=5000, dispatch_ns=1000, received="parts")


def _gpu(number: int, gpu: Gpu) -> Device:
    return Device(
        f"gpu:{number}",
        "gpu",
        gpu.memory_bytes,
        10_000 * GIGA,
        1_000 * GIGA,
        launch_ns=5000,
        dispatch_ns=1000,
        received="parts",
    )


@cache
def here() -> Cluster:
    """A core and the GPUs that PyTorch sees, else those that TensorFlow sees; without GPUs, the cores of this machine.

    Raises ValueError (one line) if the driver does not answer, and for a GPU that the table of hardware lacks.
    """
    accelerators = gpus() or tuple(Gpu(name, _part(name).usable_bytes) for name in tensorflow_gpus())
    return with_rates(accelerators) if accelerators else cores(HERE)


def with_rates(accelerators: Sequence[Gpu]) -> Cluster:
    """A core and these GPUs, with the driver's memory and the table's rates.

    Links are those of the slots that the GPUs are made for. Two GPUs are linked through the host; direct links between
    them are not detected.
    """
    template = with_gpus(HERE, accelerators)
    parts = {f"gpu:{number}": _part(gpu.name) for number, gpu in enumerate(accelerators)}
    devices = (_rated(device, parts[device.name]) if device.name in parts else device for device in template.devices)
    return replace(template, devices=tuple(devices), links=tuple(_wired(link, parts) for link in template.links))


def _part(name: str) -> Part:
    """A GPU's row in the table of hardware. Raises ValueError if there is none."""
    if (part := hardware.reported(name)) is None:
        raise ValueError(f"here: {name!r} is no GPU of the table of hardware; `gnnplace calibrate` measures it")
    return part


def _rated(device: Device, part: Part) -> Device:
    rated = part.device(device.name)
    return replace(device, flops_per_s=rated.flops_per_s, memory_bytes_per_s=rated.memory_bytes_per_s)


def _wired(link: Link, parts: dict[str, Part]) -> Link:
    slots = [slot(parts[end], None) for end in (link.src, link.dst) if end in parts]
    wire = slots[0] if len(slots) == 1 else through_host(*slots)
    return replace(
        link, bandwidth_bytes_per_s=wire.bandwidth_bytes_per_s, overhead_ns=wire.overhead_ns, latency_ns=wire.latency_ns
    )
