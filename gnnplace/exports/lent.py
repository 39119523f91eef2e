"""A module lent for a trial: fake tensors stand for its own, and all that is done to it is undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gnnplace.frontends.torch.inputs import uncompiled
from gnnplace.frontends.torch.refusals import silenced
from gnnplace.frontends.torch.trace import fake


@contextmanager
def lent(module: nn.Module, fallbacks: bool = True) -> Iterator[None]:
    """Within, the module's parameters and buffers are fake ones on the CPU, and nothing is computed; afterwards it is as it was before.

    That holds for the attributes of each module and the contents of the containers among them. `fallbacks`: an op that has no fake form
    is computed, of zeros.
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
    return [(name, tensor) for name, tensor in (*part._parameters.items(), *part._buffers.items()) if tensor is not None]


def _like(tensor: Tensor) -> Tensor:
    made = fake(tensor)
    return nn.Parameter(made.detach(), requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


def _contents(part: nn.Module) -> list[tuple[Any, Any]]:
    """The containers among a module's attributes, each with a copy."""
    return [(value, value.copy()) for value in vars(part).values() if isinstance(value, dict | list | set)]
