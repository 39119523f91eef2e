"""A module called with other tensors in place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


def called_with(
    tensors: dict[str, Tensor], module: nn.Module, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """The output of the module with `tensors` as its parameters and buffers.

    Afterwards `tensors` holds the tensors by which the call has replaced them. The module keeps its own parameters;
    PyTorch's `functional_call` (2.13) leaves `tensors` in a submodule that has two names, since it restores what it has
    put there by the first name.

    >>> import torch
    >>> pair = nn.Sequential(linear := nn.Linear(1, 1), linear)
    >>> called = called_with({"0.weight": torch.zeros(1, 1)}, pair, (torch.ones(1),), {})
    >>> torch.equal(called, linear.bias), isinstance(linear.weight, nn.Parameter)
    (True, True)
    """
    before = [(part, dict(part._parameters), dict(part._buffers)) for part in module.modules()]
    originals = {
        id(tensor) for _, parameters, buffers in before for tensor in (*parameters.values(), *buffers.values())
    }
    replacements = dict(tensors)
    try:
        with _conversions_without_effect():
            return functional_call(module, replacements, tuple(positional), dict(keywords))
    finally:
        tensors.update({name: tensor for name, tensor in replacements.items() if id(tensor) not in originals})
        for part, parameters, buffers in before:
            part._parameters.update(parameters)
            part._buffers.update(buffers)


@contextmanager
def _conversions_without_effect() -> Iterator[None]:
    """Lets a module that is called convert a layer to what it is: `self.router.to(torch.float32)` of a float32 layer.

    PyTorch swaps fake parameters for the converted ones, even for themselves, and can't while a trace holds them.
    """
    original = nn.Module._apply

    def apply(module: nn.Module, convert: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        tensors = (*module.parameters(), *module.buffers())
        return module if all(convert(tensor) is tensor for tensor in tensors) else original(module, convert, recurse)

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def replaced(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The buffers that a call of a module has replaced by other tensors: their names and new tensors.

    Raises ValueError for a replaced parameter, and for another shape or dtype.
    """
    for name, new in after.items():
        old = before[name]
        if new is not old:
            if isinstance(old, nn.Parameter) or old.requires_grad:
                raise ValueError(
                    f"module: {name}: a call replaces this parameter; a step that is captured keeps its parameters"
                )
            if (new.shape, new.dtype) != (old.shape, old.dtype):
                was, now = (f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in (old, new))
                raise ValueError(
                    f"module: {name}: a call replaces this buffer, {was}, by {now}; a step keeps shapes and "
                    "types (if the first call makes it, call the module once on example inputs)"
                )
            yield name, new
