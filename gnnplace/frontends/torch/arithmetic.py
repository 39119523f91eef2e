"""The arithmetic of an optimiser's own code, counted as one fused kernel's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gnnplace.frontends.torch.calls import Call
from gnnplace.frontends.torch.flops import flops

LATE = 1000.0
_PER_ELEMENT = {"lerp": 3, "addcmul": 3, "addcdiv": 2}  # the factor of a quotient folds into what it divides


class Counting(TorchDispatchMode):
    """Within, sums the flops of all ops, and answers `LATE` where code asks for the value of a tensor, such as the number of the step.

    >>> with torch.device("meta"), Counting() as counting:
    ...     _ = torch.zeros(4).add_(torch.zeros(4), alpha=0.1)
    >>> counting.flops
    8
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return LATE
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            names = [argument.name for argument in func._schema.arguments]
            self.flops += _fused_flops(Call(func, dict(zip(names, args, strict=False)) | (kwargs or {}), (result,)))
        return result


def _fused_flops(call: Call) -> int:
    each = 2 if call.base == "add" and call.arguments.get("alpha", 1) != 1 else _PER_ELEMENT.get(call.base)
    return flops(call) if each is None else each * call.outputs[0].numel()  # type: ignore[union-attr]
