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


class StepFakes(FakeTensorMode):
    """The mode in which a step is captured: tensors have shapes, strides and dtypes, but no values."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_non_fake_inputs=True, **options)

    @no_type_check  # the frame of a runtime type checker would precede the module's own in tracebacks
    def dispatch(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] = {}
    ) -> Any:
        """The fake result of a call."""
        call: Callable[..., Any] = super().dispatch
        if func is not _GROUPED:
            return call(func, types, args, kwargs)
        left, right, *rest = args
        if left.dtype not in _ACCEPTED or left.dtype != right.dtype:
            return call(func, types, args, kwargs)
        dtype = kwargs.get("out_dtype") or left.dtype
        with self:
            factors = [_in_half_the_bytes(factor) for factor in (left, right)]
        product = call(func, types, (*factors, *rest), {**kwargs, "out_dtype": None})
        return call(torch.ops.aten.empty_like.default, types, (product,), {"dtype": dtype})


def _in_half_the_bytes(factor: Tensor) -> Tensor:
    """A bfloat16 tensor of the same shape and strides in bytes, as alignment is checked by."""
    scale = factor.element_size() // torch.bfloat16.itemsize
    strides = [stride if stride == 1 else stride * scale for stride in factor.stride()]
    return torch.empty_strided(factor.shape, strides, dtype=torch.bfloat16, device=factor.device)
