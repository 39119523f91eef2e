"""A module lent for a trial: fake tensors replace its own, on the CPU or on devices that this machine need not have.

PyTorch built without CUDA refuses a few methods of fake tensors on `cuda`, which ask for their device first; and a node
of autograd for such a tensor ends the process. `pretended` runs these methods on the CPU, to get the shapes of their
results, and records no gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gnnplace.frontends.torch.inputs import uncompiled
from gnnplace.frontends.torch.refusals import silenced
from gnnplace.frontends.torch.trace import fake

ASKING = ("__getitem__", "__setitem__", "__invert__", "contiguous", "new_tensor")
RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu")  # their CUDA kernels have no fake form
CPU = torch.device("cpu")


@contextmanager
def lent(module: nn.Module, fallbacks: bool = True) -> Iterator[None]:
    """Within this context the module's parameters and buffers are fake ones on the CPU, and nothing is computed.

    Leaving it restores the attributes of each module and the contents of the containers among them. `fallbacks`: an op
    that has no fake form is computed, on zeros.
    """
    parts = list(module.modules())
    before = [(part, dict(vars(part)), _contents(part)) for part in parts]
    try:
        with uncompiled(), FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=fallbacks), silenced():
            fakes: dict[int, Tensor] = {}
            for part in parts:
                for name, tensor in _tensors(part):
                    if id(tensor) not in fakes:
                        fakes[id(tensor)] = _fake_like(tensor)
                    setattr(part, name, fakes[id(tensor)])
            yield
    finally:
        for part, attributes, contents in before:
            vars(part).clear()
            vars(part).update(attributes)
            for container, held in contents:
                container.clear()
                container.extend(held) if isinstance(container, list) else container.update(held)


def _tensors(part: nn.Module) -> list[tuple[str, Tensor]]:
    """The parameters and buffers of a module, without those of its children."""
    tensors = (*part._parameters.items(), *part._buffers.items())
    return [(name, tensor) for name, tensor in tensors if tensor is not None]


def _fake_like(tensor: Tensor) -> Tensor:
    """A fake tensor of the same layout, a parameter if the tensor is one."""
    like = fake(tensor)
    return nn.Parameter(like.detach(), requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else like


def _contents(part: nn.Module) -> list[tuple[Any, Any]]:
    """The containers among a module's attributes, each with a copy."""
    return [(value, value.copy()) for value in vars(part).values() if isinstance(value, dict | list | set)]


@contextmanager
def pretended() -> Iterator[None]:
    """Within this context fake tensors may be on any accelerator, and gradients are off."""
    methods = {name: partialmethod(_by_shape, getattr(Tensor, name), (CPU,)) for name in ASKING} | {"copy_": _copied}
    with ExitStack() as held, torch.no_grad(), _Pretending():
        held.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)  # its op, a whole layer, has no fake form
        for name, method in methods.items():
            setattr(FakeTensor, name, method)
            held.callback(delattr, FakeTensor, name)
        yield


class _Pretending(TorchFunctionMode):
    """Within this mode gradients stay off, and recurrent networks run on the CPU."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._set_grad_enabled:
            return func(False)
        if getattr(func, "__name__", "") in RECURRENT:
            return _by_shape(args[0], func, (), *args[1:], **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _by_shape(
    first: Tensor, function: Callable[..., Any], beside: Sequence[torch.device], *arguments: Any, **named: Any
) -> Any:
    """The result of a function, computed on the CPU and returned on the device of the first tensor.

    Raises RuntimeError, as CUDA would, for tensors that are neither on that device nor on one of those in `beside`.
    """
    devices = {leaf.device for leaf in pytree.tree_leaves((first, arguments, named)) if isinstance(leaf, Tensor)}
    if strange := devices - {first.device, *(beside if first.device != CPU else ())}:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found two devices, {first.device} and {strange.pop()}"
        )
    if first.device == CPU:
        return function(first, *arguments, **named)
    device = named.pop("device", None) or first.device
    on_cpu = pytree.tree_map_only(Tensor, lambda tensor: _on(tensor, CPU), (first, *arguments))
    return pytree.tree_map_only(Tensor, lambda tensor: _on(tensor, device), function(*on_cpu, **named))


def _copied(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`copy_`, also from another device."""
    if tensor.device == source.device == CPU:
        return Tensor.copy_(tensor, source, non_blocking)
    Tensor.copy_(_on(tensor, CPU), _on(source, CPU))  # refuses other shapes
    return tensor


def _on(tensor: Tensor, device: torch.device | str) -> Tensor:
    """An empty tensor of the same layout on a device."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
