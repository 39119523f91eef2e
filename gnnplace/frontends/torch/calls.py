"""One ATen call of a trace, and the bytes of a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Call:
    """One traced call: the op, its arguments by name (with fake tensors for tensors) and its outputs."""

    target: torch._ops.OpOverload
    arguments: Mapping[str, Any]
    outputs: tuple[Tensor | None, ...]

    @property
    def kind(self) -> str:
        if self.base == "gnnplace::update":
            return f"optim.{self.arguments['optimizer']}"
        return "aten." + self.target._schema.name.removeprefix("aten::")

    @cached_property
    def base(self) -> str:
        """The op's name without namespace and without the underscore of its in-place form."""
        return self.target._schema.name.removeprefix("aten::").removesuffix("_")

    @cached_property
    def written(self) -> tuple[Tensor, ...]:
        """The tensors that the op writes in place, according to its schema with two corrections.

        Optimisers write gradients only to unscale them, which this step does not do. Batch norm's schema does not
        declare that it writes its running statistics.
        """
        names = [
            a.name
            for a in self.target._schema.arguments
            if a.alias_info and a.alias_info.is_write and a.name != "grads"
        ]
        names += (
            ["running_mean", "running_var"] if self.base == "native_batch_norm" and self.arguments["training"] else []
        )
        return tuple(tensor for name in names for tensor in tensors(self.arguments.get(name)))

    @cached_property
    def unread(self) -> tuple[Tensor, ...]:
        """The arguments that the op does not read: the running statistics, for batch norm's gradient in training."""
        unread = self.base == "native_batch_norm_backward" and self.arguments["train"]
        return (
            tuple(tensor for name in ("running_mean", "running_var") for tensor in tensors(self.arguments[name]))
            if unread
            else ()
        )

    @property
    def first_output(self) -> Tensor:
        """The first output that is a tensor. Raises StopIteration without any."""
        return next(tensor for tensor in self.outputs if tensor is not None)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for value in self.arguments.values() for tensor in tensors(value))


def call_of(node: torch.fx.Node) -> Call | None:
    """The call of a traced node; None if it calls no ATen op."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    args = torch.fx.node.map_arg(node.args, lambda parent: parent.meta["val"])
    kwargs = torch.fx.node.map_arg(node.kwargs, lambda parent: parent.meta["val"])
    names = [argument.name for argument in node.target._schema.arguments]
    return Call(node.target, dict(zip(names, args, strict=False)) | dict(kwargs), values_of(node))


def values_of(node: torch.fx.Node) -> tuple[Tensor | None, ...]:
    """The fake tensors that a traced node yields; None for a value that is no tensor."""
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return tuple(item if isinstance(item, Tensor) else None for item in value)
    return () if value is None else (value,)


def tensor_bytes(tensor: Tensor) -> int:
    """The bytes of a tensor's distinct elements: an expanded dimension (stride 0) counts once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0]
    return math.prod(sizes) * tensor.element_size()


def tensors(value: object) -> tuple[Tensor, ...]:
    """The tensors in an argument, which may be a list."""
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(item for item in value if isinstance(item, Tensor))
    return ()
