"""Dropout (Srivastava et al. 2014) whose zeroes are known by a number, so that a tape that keeps the number can replay them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class Dropout:
    """Zeroes a share of the numbers that it is given and scales the others; `number` 0 zeroes none.

    The same number gives the same zeroes, call by call, on every device.
    """

    def __init__(self, share: float, number: int) -> None:
        self.share = share if number else 0.0
        self._generator = torch.Generator().manual_seed(number)

    def __call__(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.share:
            return values
        factor = torch.rand(values.shape, generator=self._generator).ge_(self.share).div_(1 - self.share)
        return values * factor.to(values)
