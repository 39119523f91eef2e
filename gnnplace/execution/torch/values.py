"""Values of traced nodes: the layout in which they are sent, which are random, which a step starts from and keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

Node = torch.fx.Node


def as_sent(tensor: Tensor) -> Tensor:
    """A tensor's layout in the receiver's memory: its own strides if it fills its memory, else closely packed.

    Expanded elements (stride 0) are sent once. The layout is a meta tensor, because threads can't share fake tensors.
    """
    dense = torch.empty_like(tensor[once(tensor)])
    return torch.empty_strided(dense.shape, dense.stride(), dtype=dense.dtype, device="meta").expand(tensor.shape)


def is_whole(tensor: Tensor, sent: Tensor) -> bool:
    """Whether the sent layout (`as_sent`) holds all bytes of the tensor's memory. A lazy conjugate is sent resolved."""
    resolved = not (tensor.is_conj() or tensor.is_neg())
    return (
        resolved
        and sent.stride() == tensor.stride()
        and sent.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
    )


def turned(node: Node) -> Callable[[Tensor], Tensor] | None:
    """A function that removes a value's lazy conjugate and negative before it is sent, and restores them on arrival.

    None if the value has neither. An op that takes the conjugate of a conjugate expects the first to be lazy.
    """
    value = node.meta["val"]
    turns = [turn for turn, lazy in ((torch.conj, value.is_conj()), (torch._neg_view, value.is_neg())) if lazy]
    return (lambda tensor: reduce(lambda turning, turn: turn(turning), turns, tensor)) if turns else None


def once(tensor: Tensor) -> tuple[slice, ...]:
    """The index that selects each element of an expanded tensor once."""
    return tuple(
        slice(1) if stride == 0 and size > 1 else slice(None)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def is_random(node: Node) -> bool:
    """Whether the node's op draws random numbers; attention does so only with dropout."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    parameters = [argument.name for argument in op._schema.arguments]
    arguments = dict(zip(parameters, node.args, strict=False)) | node.kwargs
    return "dropout_p" not in parameters or bool(arguments.get("dropout_p", 0.0))


def random_nodes(graph: torch.fx.Graph) -> list[Node]:
    """The nodes of a trace whose ops draw random numbers."""
    return [node for node in graph.nodes if is_random(node)]


class Held(NamedTuple):
    """The values of nodes that exist before the step, the names of those that a step changes, and what a step keeps.

    Devices copy the values and keep the `losses`, scalars whose sum is the loss. With `results` they share the values,
    each on its device, and write the value of each node in `results` to its tensor. `draws` is added to a step's number
    to seed its random ops.
    """

    values: Mapping[Node, Tensor]
    names: Mapping[Node, str]
    losses: tuple[Node, ...]
    results: Mapping[Node, Tensor] | None = None
    draws: int = 0
