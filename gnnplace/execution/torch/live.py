"""Values that a module and the devices of its placed step have in common: an optimiser changes parameters where devices read them.

For CPU devices they lie in memory that processes share. It is anonymous, made before the processes are forked, and lives as long as a
tensor in it: it takes nothing of /dev/shm, and no descriptors. For GPUs they lie on the device of their op.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from gnnplace.execution.torch.shared_memory import extent_bytes, shaped
from gnnplace.execution.torch.values import once

ALIGNMENT_BYTES = 64  # a cache line


def shared(likes: Sequence[Tensor]) -> list[Tensor]:
    """A tensor of the layout of each, zeros, in memory that this process has in common with those that it forks from now on."""
    sizes = [-(-extent_bytes(like) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for like in likes]
    memory, start, made = mmap.mmap(-1, max(sum(sizes), mmap.PAGESIZE)), 0, []
    for like, size in zip(likes, sizes, strict=True):
        arena = torch.frombuffer(memory, dtype=torch.uint8, count=extent_bytes(like), offset=start) if size else torch.empty(0)
        made.append(shaped(arena, like))  # with a storage of its own, for who saves it
        start += size
    return made


def beside(likes: Sequence[Tensor], devices: Sequence[torch.device]) -> list[Tensor]:
    """A tensor of the layout of each on its device, with undefined values."""
    pairs = zip(likes, devices, strict=True)
    return [torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device) for like, device in pairs]


def fill(place: Tensor, value: Tensor) -> None:
    """Copies a value to its place."""
    index = once(place)
    place[index].copy_(value.detach()[index])


class LiveTensors:
    """The parameters and buffers of a module at the places where devices have them, by name; the tensors stay the same objects."""

    def __init__(self, module: nn.Module, places: Mapping[str, Tensor]) -> None:
        self._module, self._tensors, self._places = module, named_tensors(module), places
        for name, place in places.items():
            fill(place, self._tensors[name])
            self._tensors[name].data = place

    def settle(self) -> None:
        """Brings back to its place what has got other memory since (`parameter.data = ...`).

        Raises ValueError for tensors that were added, removed or replaced since, and for another shape, type or device.
        """
        now = named_tensors(self._module)
        for name in (*now, *self._tensors):
            if now.get(name) is not self._tensors.get(name):
                what = "replaced" if name in now and name in self._tensors else "added" if name in now else "removed"
                raise ValueError(f"module: {name}: was {what} after the step was placed; place it anew")
        for name, place in self._places.items():
            tensor = now[name]
            if tensor.data_ptr() != place.data_ptr() or tensor.stride() != place.stride():
                if described(tensor) != described(place):
                    raise ValueError(f"module: {name}: is {described(tensor)}, and was placed as {described(place)}; place it anew")
                fill(place, tensor)
                tensor.data = place


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module by name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def check_values(module: nn.Module) -> None:
    """Raises ValueError for a tensor without values, and for two of which one lies in the other's memory."""
    spans = []
    for name, tensor in named_tensors(module).items():
        if tensor.is_meta:
            raise ValueError(f"module: {name}: lies on the meta device; a step that runs needs values")
        if tensor.numel():
            spans.append((str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + extent_bytes(tensor), name))
    for (device, _, end, name), (other, start, _, second) in pairwise(sorted(spans)):
        if device == other and start < end:
            raise ValueError(f"module: {second}: lies in the memory of {name}; make them one parameter, or two")


def described(tensor: Tensor) -> str:
    """A tensor's type, shape and device in words."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"


def synchronize(devices: Iterable[torch.device]) -> None:
    """Waits until these GPUs have done what this thread gave them."""
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
