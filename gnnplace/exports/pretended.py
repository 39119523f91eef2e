"""Fake tensors on `cuda` devices that nobody has to have, under the rules of what may meet.

PyTorch built without CUDA refuses a few methods of such tensors, which ask for their device before anything else, and a node of autograd
for one ends the process. Here these methods are done on the CPU, as far as shapes go, and no gradient is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

ASKING = ("__getitem__", "__setitem__", "__invert__", "contiguous", "new_tensor")


@contextmanager
def pretended() -> Iterator[None]:
    """Within, fake tensors may be on any accelerator, and gradients are off."""
    with ExitStack() as held, torch.no_grad(), _NoGradients():
        held.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # one call of a whole layer, which has no fake form
        for name in ASKING:
            setattr(FakeTensor, name, _by_shape(getattr(Tensor, name)))
            held.callback(delattr, FakeTensor, name)
        yield


class _NoGradients(TorchFunctionMode):
    """Within, nobody switches gradients on."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*((False,) if func is torch._C._set_grad_enabled else args), **(kwargs or {}))


def _by_shape(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of tensors that finds a result's shape on the CPU. Raises RuntimeError where CUDA would, for tensors of two devices."""

    def found(tensor: Tensor, *arguments: Any, **named: Any) -> Any:
        given = [each for each in pytree.tree_leaves((tensor, arguments, named)) if isinstance(each, Tensor)]
        device = named.pop("device", None) or tensor.device
        if all(each.device.type == "cpu" for each in given):
            return method(tensor, *arguments, **named)
        strange = [each.device for each in given if each.device not in (tensor.device, torch.device("cpu"))]
        if strange or (tensor.device.type == "cpu" and len({each.device for each in given}) > 1):
            raise RuntimeError(f"Expected all tensors to be on the same device, but found {tensor.device} and {(strange or [device])[0]}")
        made = method(*pytree.tree_map_only(Tensor, lambda each: _on(each, "cpu"), (tensor, *arguments)), **named)
        return made if made is None else _on(made, device)

    return found


def _on(tensor: Tensor, device: torch.device | str) -> Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
