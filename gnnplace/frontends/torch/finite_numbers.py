"""The answers of ops that ask whether numbers are finite, if all numbers are.

`x.isnan()`, `x.isinf()` and their like are ops of their own; `x.isfinite()` is `(x.abs() != inf) * (x == x)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_aten = torch.ops.aten
_NEVER = (_aten.isnan.default, _aten.isinf.default, _aten.isposinf.default, _aten.isneginf.default)
_SAME = {_aten.eq.Tensor: True, _aten.ne.Tensor: False}
_INFINITE = {_aten.eq.Scalar: False, _aten.ne.Scalar: True}


class FiniteNumbers:
    """Follows the ops of a trace, one after the other."""

    def __init__(self) -> None:
        self._absolute: Any = WeakIdKeyDictionary()

    def answer(self, func: torch._ops.OpOverload, args: Sequence[Any], result: Any) -> bool | None:
        """What an op gives for each element if all numbers are finite; None if it does not ask that."""
        if func is _aten.abs.default:
            self._absolute[result] = True
        if func in _NEVER:
            return False
        if func in _SAME and args[0] is args[1]:
            return _SAME[func]
        if func in _INFINITE and args[1] == math.inf and isinstance(args[0], Tensor) and args[0] in self._absolute:
            return _INFINITE[func]
        return None
