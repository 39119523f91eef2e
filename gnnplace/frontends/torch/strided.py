"""Calls that read a tensor's storage by strides of their own: `as_strided` and its kin.

On another device a tensor has a new, dense storage. Such a call works there only if it reads nothing outside its
argument and the argument keeps its strides. Otherwise the call has to run on the device of the original storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gnnplace.frontends.torch.calls import Call

BASES = ("as_strided", "as_strided_copy", "as_strided_scatter", "_reshape_alias")


def needs_its_storage(call: Call) -> bool:
    """Whether a call works only on the device with the storage of its argument.

    >>> rows, op = torch.zeros(4, 6), torch.ops.aten.as_strided.default
    >>> windows = Call(op, {"self": rows, "size": (3, 2), "stride": (6, 1), "storage_offset": 6}, ())
    >>> beyond = Call(op, {"self": rows[1], "size": (3, 2), "stride": (6, 1), "storage_offset": 6}, ())
    >>> needs_its_storage(windows), needs_its_storage(beyond)
    (False, True)
    """
    if call.base not in BASES:
        return False
    tensor, size, stride = (call.arguments[name] for name in ("self", "size", "stride"))
    start, extent = _start(call), _extent(tensor.shape, tensor.stride())
    dense = extent == tensor.numel() and torch.empty_like(tensor).stride() == tensor.stride()
    return not (dense and start >= 0 and start + _extent(size, stride) <= extent)


def from_its_start(call: Call) -> Callable[..., Any]:
    """The call's op with an offset relative to the start of its argument, so that it works on any device."""
    if call.base not in BASES or call.arguments.get("storage_offset") is None:
        return call.target
    names, start = [argument.name for argument in call.target._schema.arguments], _start(call)

    def run(tensor: Tensor, *rest: Any, **keywords: Any) -> Any:
        arguments = dict(zip(names[1:], rest, strict=False)) | keywords
        return call.target(tensor, **arguments | {"storage_offset": tensor.storage_offset() + start})

    return run


def _start(call: Call) -> int:
    """The distance, in elements, from the first element of the argument to the first one that the call reads."""
    offset, argument_offset = call.arguments.get("storage_offset"), call.arguments["self"].storage_offset()
    return 0 if offset is None else int(offset) - int(argument_offset)


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """The number of elements of storage from the first to the last one that a view shows."""
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
