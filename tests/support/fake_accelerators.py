"""accelerate's own dispatch on `cuda` devices that are not there: a second way beside the product's, for what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gnnplace.exports.lent import pretended


@contextmanager
def moving() -> Iterator[None]:
    """Within, accelerate moves fake weights by making others."""
    from accelerate import hooks

    def move(module: nn.Module, name: str, device: Any, value: Any = None, tied_params_map: Any = None, **_: Any) -> None:
        *parents, name = name.split(".")
        module = module.get_submodule(".".join(parents))
        held = module._buffers if name in module._buffers else module._parameters
        made = torch.empty(held[name].shape, dtype=held[name].dtype, device=named(device))
        held[name] = made if held is module._buffers else nn.Parameter(made, requires_grad=False)

    real = hooks.set_module_tensor_to_device
    hooks.set_module_tensor_to_device = move
    try:
        yield
    finally:
        hooks.set_module_tensor_to_device = real


def named(device: Any) -> Any:
    return f"cuda:{device}" if isinstance(device, int) else device


def shapes(made: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in torch.utils._pytree.tree_leaves(made) if isinstance(leaf, Tensor)]


def dispatched(make: Callable[[], nn.Module], device_map: dict[str, Any], inputs: tuple[Tensor, ...]) -> list[tuple[int, ...]]:
    """The shapes of what a network returns that accelerate dispatched by a map; its tensors really lie on all devices of the map."""
    from accelerate import dispatch_model
    from accelerate.utils import check_device_map

    with FakeTensorMode(allow_non_fake_inputs=True), pretended(), moving(), torch.compiler.set_stance("force_eager"):
        module = make().eval()
        check_device_map(module, device_map)
        numbers = [device for device in set(device_map.values()) if device != "cpu"]
        main = named(numbers[0]) if numbers else "cpu"
        dispatch_model(module, {name: named(device) for name, device in device_map.items()}, main_device=main, force_hooks=True)
        held = {str(tensor.device) for tensor in (*module.parameters(), *module.buffers())}
        assert held == {named(device) for device in device_map.values()}, held
        return shapes(module(*(torch.empty_like(tensor, device=main) for tensor in inputs)))


def undivided(make: Callable[[], nn.Module], inputs: tuple[Tensor, ...]) -> list[tuple[int, ...]]:
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        return shapes(make().eval()(*inputs))
