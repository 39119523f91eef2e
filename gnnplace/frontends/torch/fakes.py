"""Fake tensors for whatever PyTorch's CPU kernels accept.

PyTorch's fake kernel of a grouped product accepts bfloat16 alone; the kernel itself float32 and float16 as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

_GROUPED = torch.ops.aten._grouped_mm.default
_ACCEPTED = (torch.float32, torch.float16)


@no_type_check  # the frame of a runtime type checker would precede the module's own in tracebacks
def dispatched(
    mode: FakeTensorMode,
    dispatch: Callable[..., Any],
    func: Any,
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """The fake result of a call; that of a grouped product as in bfloat16, but for its dtype."""
    if func is not _GROUPED:
        return dispatch(func, types, args, kwargs or {})
    left, right, *rest = args
    if left.dtype not in _ACCEPTED or left.dtype != right.dtype:
        return dispatch(func, types, args, kwargs or {})
    options = dict(kwargs or {})
    dtype = options.pop("out_dtype", None) or left.dtype
    with mode:
        factors = [_in_half_the_bytes(factor) for factor in (left, right)]
    product = dispatch(func, types, (*factors, *rest), options)
    return dispatch(torch.ops.aten.empty_like.default, types, (product,), {"dtype": dtype})


def _in_half_the_bytes(factor: Tensor) -> Tensor:
    """A bfloat16 tensor of the same shape and strides in bytes, as alignment is checked by."""
    scale = factor.element_size() // torch.bfloat16.itemsize
    strides = [stride if stride == 1 else stride * scale for stride in factor.stride()]
    return torch.empty_strided(factor.shape, strides, dtype=torch.bfloat16, device=factor.device)
