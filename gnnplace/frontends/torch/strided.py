"""Calls that look at a tensor's storage by strides of their own, `as_strided` and its kin, wherever the tensor itself
lies in there.

What arrives on another device lies in a storage of its own, closely packed. There such a call finds what it looks for
only if that is within its argument, and its argument keeps its strides; else it stands where the storage is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gnnplace.frontends.torch.calls import Call

BASES = ("as_strided", "as_strided_copy", "as_strided_scatter", "_reshape_alias")


def leaves_its_tensor(call: Call) -> bool:
    """Whether a call finds what it looks for only where the storage of its argument lies.

    >>> rows, op = torch.zeros(4, 6), torch.ops.aten.as_strided.default
    >>> windows = Call(op, {"self": rows, "size": (3, 2), "stride": (6, 1), "storage_offset": 6}, ())
    >>> beyond = Call(op, {"self": rows[1], "size": (3, 2), "stride": (6, 1), "storage_offset": 6}, ())
    >>> leaves_its_tensor(windows), leaves_its_tensor(beyond)
    (False, True)
    """
    if call.base not in BASES:
        return False
    tensor, size, stride = (call.arguments[name] for name in ("self", "size", "stride"))
    start, extent = _start(call), _extent(tensor.shape, tensor.stride())
    dense = extent == tensor.numel() and torch.empty_like(tensor).stride() == tensor.stride()
    return not (dense and start >= 0 and start + _extent(size, stride) <= extent)


def from_its_start(call: Call) -> Callable[..., Any]:
    """The call's op, with an offset that counts from where its argument starts in its storage, wherever that is."""
    if call.base not in BASES or call.arguments.get("storage_offset") is None:
        return call.target
    names, start = [argument.name for argument in call.target._schema.arguments], _start(call)

    def run(tensor: Tensor, *rest: Any, **named: Any) -> Any:
        given = dict(zip(names[1:], rest, strict=False)) | named
        return call.target(tensor, **given | {"storage_offset": tensor.storage_offset() + start})

    return run


def _start(call: Call) -> int:
    """How many elements after its argument's first the call looks first."""
    offset, begin = call.arguments.get("storage_offset"), call.arguments["self"].storage_offset()
    return 0 if offset is None else int(offset) - int(begin)


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """The elements from the first to the last, those between included."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
