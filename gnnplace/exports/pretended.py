"""Fake tensors on `cuda` devices that nobody has to have, under the rules of what may meet.

PyTorch built without CUDA refuses a few methods of such tensors, which ask for their device before anything else, and a node of autograd
for one ends the process. Here these methods are done on the CPU, as far as shapes go, and no gradient is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

ASKING = ("__getitem__", "__setitem__", "__invert__", "contiguous", "new_tensor")
RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu")  # whose kernels for CUDA have no fake form
CPU = torch.device("cpu")


@contextmanager
def pretended() -> Iterator[None]:
    """Within, fake tensors may be on any accelerator, and gradients are off."""
    methods = {name: partialmethod(_by_shape, getattr(Tensor, name), (CPU,)) for name in ASKING} | {"copy_": _copied}
    with ExitStack() as held, torch.no_grad(), _Pretending():
        held.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # one call of a whole layer, which has no fake form
        for name, method in methods.items():
            setattr(FakeTensor, name, method)
            held.callback(delattr, FakeTensor, name)
        yield


class _Pretending(TorchFunctionMode):
    """Within, nobody switches gradients on, and recurrent networks are done on the CPU."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled:
            return func(False)
        if getattr(func, "__name__", "") in RECURRENT:
            return _by_shape(args[0], func, (), *args[1:], **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _by_shape(first: Tensor, function: Callable[..., Any], beside: Sequence[torch.device], *arguments: Any, **named: Any) -> Any:
    """What a function returns, found on the CPU, where the first tensor is.

    Raises RuntimeError where CUDA would, for tensors that are neither there nor on one of the devices `beside`.
    """
    places = {each.device for each in pytree.tree_leaves((first, arguments, named)) if isinstance(each, Tensor)}
    if strange := places - {first.device, *(beside if first.device != CPU else ())}:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found two devices, {first.device} and {strange.pop()}")
    if first.device == CPU:
        return function(first, *arguments, **named)
    device = named.pop("device", None) or first.device
    made = function(*pytree.tree_map_only(Tensor, lambda each: _on(each, CPU), (first, *arguments)), **named)
    return pytree.tree_map_only(Tensor, lambda each: _on(each, device), made)


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`copy_`, which may be from another device."""
    if tensor.device == source.device == CPU:
        return Tensor.copy_(tensor, source, non_blocking)
    Tensor.copy_(_on(tensor, CPU), _on(source, CPU))  # refuses other shapes
    return tensor


def _on(tensor: Tensor, device: torch.device | str) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
