"""A stand-in for a GPU: numbers of the CPU under CUDA's rules of what may meet.

Inside `using(GPU)` a tensor that is made on `GPU`, or moved there, holds its numbers in a plain tensor, and each op on it runs on
those. As under CUDA an op must not get tensors of both devices (but a number without dimensions), and numpy can't read a tensor of the
GPU. Beyond CUDA, indices must be beside what they index, and nothing is drawn on the GPU. PyTorch must know the device for its backward
pass, which it does of CUDA with a CUDA build alone: so the stand-in goes by the name of "meta", whose tensors have no numbers elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("meta")
BETWEEN_DEVICES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
REAL_GPU = pytest.param(
    "cuda:0", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device here")]
)


class OnGPU(torch.Tensor):
    """A tensor of the GPU; `numbers` are what it holds."""

    numbers: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers):
        made = torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), storage_offset=numbers.storage_offset(), dtype=numbers.dtype, device=GPU
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return run(op, args, kwargs or {})


class _Pretend(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        return run(op, args, kwargs or {})


class _FromData(TorchFunctionMode):
    """Python data reach the GPU by way of the CPU: PyTorch itself would leave them out on "meta"."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if function in (torch.tensor, torch.as_tensor) and device is not None and torch.device(device) == GPU:
            return function(*args, **{**kwargs, "device": "cpu"}).to(GPU)
        return function(*args, **kwargs)


@contextmanager
def using(device: torch.device | str) -> Iterator[None]:
    """Where a device can be used: `GPU`, or a real one, whose recurrent networks then don't round to TF32."""
    if torch.device(device) != GPU:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
        return
    with _Pretend(), _FromData(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*copying from a non-meta parameter.*")  # PyTorch takes it for the device without numbers
        yield


def run(op, args, kwargs):
    """One op on the numbers; its results are where CUDA would have them. Raises RuntimeError where CUDA would refuse."""
    there = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, OnGPU)]
    device = kwargs.get("device")
    if device is None and op not in BETWEEN_DEVICES:
        _check_devices(op, args, kwargs, bool(there))
    on_gpu = bool(there) if device is None else torch.device(device) == GPU
    if op is torch.ops.aten.copy_.default:
        on_gpu = isinstance(args[0], OnGPU)
    if on_gpu and torch.Tag.nondeterministic_seeded in op.tags:
        raise RuntimeError(f"{op}: draws on the GPU; draws are of a CPU generator, so that a seed means the same on both")
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu") if on_gpu else device}
    args, kwargs = tree_map(lambda value: value.numbers if isinstance(value, OnGPU) else value, (args, kwargs))
    found = op(*args, **kwargs)
    same = {id(tensor.numbers): tensor for tensor in there}  # an op in place gives its argument
    return (
        tree_map(lambda value: same.get(id(value), OnGPU(value)) if isinstance(value, torch.Tensor) else value, found) if on_gpu else found
    )


def _check_devices(op, args, kwargs, any_there):
    for value in (*args, *kwargs.values()):
        inside = isinstance(value, (list, tuple))
        for tensor in tree_leaves(value):
            elsewhere = isinstance(tensor, torch.Tensor) and not isinstance(tensor, OnGPU)
            if any_there and elsewhere and (tensor.dim() > 0 or inside or (op._schema.is_mutable and value is args[0])):
                raise RuntimeError(f"{op}: expected all tensors to be on the same device, but found at least two devices, {GPU} and cpu")
