"""Values of traced nodes: how they are sent, which are random, which a step starts from and keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

Node = torch.fx.Node


def as_sent(tensor: Tensor) -> Tensor:
    """The tensor as it lies in the receiver's memory: with its own strides if it fills its memory, else closely packed.
    Expanded elements (stride 0) are sent once. It is a meta tensor, because threads can't share fake tensors.
    """
    dense = torch.empty_like(tensor[once(tensor)])
    return torch.empty_strided(dense.shape, dense.stride(), dtype=dense.dtype, device="meta").expand(tensor.shape)


def is_whole(tensor: Tensor, sent: Tensor) -> bool:
    """Whether what is sent of a tensor (`as_sent`) is all of its memory,
    byte by byte: a lazy conjugate is sent resolved.
    """
    resolved = not (tensor.is_conj() or tensor.is_neg())
    return (
        resolved
        and sent.stride() == tensor.stride()
        and sent.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
    )


def turned(node: Node) -> Callable[[Tensor], Tensor] | None:
    """What takes the lazy conjugate and negative of a node's value off it, to be sent, and puts them on again where it
    arrives; None where it has neither. An op that takes a conjugate's conjugate counts on the first to be lazy.
    """
    value = node.meta["val"]
    turns = [turn for turn, lazy in ((torch.conj, value.is_conj()), (torch._neg_view, value.is_neg())) if lazy]
    return (lambda tensor: reduce(lambda turning, turn: turn(turning), turns, tensor)) if turns else None


def once(tensor: Tensor) -> tuple[slice, ...]:
    """The index that takes an expanded tensor's elements once."""
    return tuple(
        slice(1) if stride == 0 and size > 1 else slice(None)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_random(node: Node) -> bool:
    """Whether the node's op draws random numbers; attention does so only with dropout."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    given = dict(zip((argument.name for argument in op._schema.arguments), node.args, strict=False)) | node.kwargs
    attends = any(argument.name == "dropout_p" for argument in op._schema.arguments)
    return not attends or bool(given.get("dropout_p", 0.0))


class Held(NamedTuple):
    """What exists before the step: the value of each such node, the names of those that a step changes; and what is
    kept of a step.

    Devices have copies of the values and keep the loss, a scalar. With `results` they share the values, each on its
    device, and write the value of each such node to its place; random draws are those of the step of the number plus
    `draws`.
    """

    values: Mapping[Node, Tensor]
    names: Mapping[Node, str]
    loss: Node | None
    results: Mapping[Node, Tensor] | None = None
    draws: int = 0
