"""A module lent for a trial: fake tensors stand for its own, on the CPU or on devices that nobody has to have.

PyTorch built without CUDA refuses a few methods of fake tensors on `cuda`, which ask for their device before anything
else, and a node of autograd for one ends the process. `pretended` does these methods on the CPU, as far as shapes go,
and follows no gradient.
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
RECURRENT = ("gru", "lstm", "rnn_tanh", "rnn_relu")  # whose kernels for CUDA have no fake form
CPU = torch.device("cpu")


@contextmanager
def lent(module: nn.Module, fallbacks: bool = True) -> Iterator[None]:
    """Within, the module's parameters and buffers are fake ones on the CPU, and nothing is computed; afterwards it is
    as it was before.

    That holds for the attributes of each module and the contents of the containers among them. `fallbacks`: an op that
    has no fake form is computed, of zeros.
    """
    parts = list(module.modules())
    before = [(part, dict(vars(part)), _contents(part)) for part in parts]
    try:
        with uncompiled(), FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=fallbacks), silenced():
            made: dict[int, Tensor] = {}
            for part in parts:
                for name, tensor in _own(part):
                    if id(tensor) not in made:
                        made[id(tensor)] = _like(tensor)
                    setattr(part, name, made[id(tensor)])
            yield
    finally:
        for part, attributes, contents in before:
            vars(part).clear()
            vars(part).update(attributes)
            for container, held in contents:
                container.clear()
                container.extend(held) if isinstance(container, list) else container.update(held)


def _own(part: nn.Module) -> list[tuple[str, Tensor]]:
    return [
        (name, tensor) for name, tensor in (*part._parameters.items(), *part._buffers.items()) if tensor is not None
    ]


def _like(tensor: Tensor) -> Tensor:
    made = fake(tensor)
    return nn.Parameter(made.detach(), requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _contents(part: nn.Module) -> list[tuple[Any, Any]]:
    """The containers among a module's attributes, each with a copy."""
    return [(value, value.copy()) for value in vars(part).values() if isinstance(value, dict | list | set)]


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


def _by_shape(
    first: Tensor, function: Callable[..., Any], beside: Sequence[torch.device], *arguments: Any, **named: Any
) -> Any:
    """What a function returns, found on the CPU, where the first tensor is.

    Raises RuntimeError where CUDA would, for tensors that are neither there nor on one of the devices `beside`.
    """
    places = {each.device for each in pytree.tree_leaves((first, arguments, named)) if isinstance(each, Tensor)}
    if strange := places - {first.device, *(beside if first.device != CPU else ())}:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found two devices, {first.device} and {strange.pop()}"
        )
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
