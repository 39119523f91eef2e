"""The answers of ops that ask whether numbers are finite, if all numbers are.

`x.isnan()`, `x.isinf()` and their like are ops of their own; `x.isfinite()` is `(x.abs() != inf) * (x == x)`. A step
may make numbers infinite itself: a mask of -inf does, until a softmax or the like. Nothing is said of those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

_aten = torch.ops.aten
_NEVER = (_aten.isnan.default, _aten.isinf.default, _aten.isposinf.default, _aten.isneginf.default)
_SAME = {_aten.eq.Tensor: True, _aten.ne.Tensor: False}
_INFINITE = {_aten.eq.Scalar: False, _aten.ne.Scalar: True}
_BOUNDED = ("softmax", "attention", "sigmoid", "tanh", "exp", "clamp", "nan_to_num")  # parts of names of ops


class FiniteNumbers:
    """Follows the ops of a trace, one after the other."""

    def __init__(self) -> None:
        self._infinite: Any = WeakIdKeyDictionary()

    def answer(
        self, func: torch._ops.OpOverload, args: Sequence[Any], values: Sequence[Any], result: Any
    ) -> bool | None:
        """What an op gives for each element if all numbers are finite; None if it does not ask that.

        `values` are the leaves of the arguments, with values for known tensors. An op may ask it of infinite numbers:
        None, too.
        """
        asks = func in _NEVER or func in _SAME or func in _INFINITE
        numbers = [value for value in values if isinstance(value, Tensor)] if asks else values
        if not any(part in func._opname for part in _BOUNDED) and any(map(self._is_infinite, numbers)):
            for leaf in pytree.tree_leaves(result):
                if isinstance(leaf, Tensor) and leaf.is_floating_point():
                    self._infinite[leaf] = True
            return None
        if func in _NEVER:
            return False
        if func in _SAME and args[0] is args[1]:
            return _SAME[func]
        return _INFINITE[func] if func in _INFINITE and math.isinf(args[1]) else None

    def _is_infinite(self, value: Any) -> bool:
        """Whether an argument is infinite or holds infinite numbers, as far as the trace tells."""
        if isinstance(value, FakeTensor):
            return value in self._infinite
        if isinstance(value, Tensor):
            with unset_fake_temporarily():
                return value.is_floating_point() and bool(value.isinf().any())
        return isinstance(value, float) and math.isinf(value)
