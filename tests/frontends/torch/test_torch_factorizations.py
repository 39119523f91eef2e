"""Linear algebra, Fourier transforms and lookups in a captured inference have the flops of their algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnplace.frontends.torch.inference import inference

SQUARE, TALL, SIDE = torch.zeros(3, 6, 6), torch.zeros(3, 8, 6), torch.zeros(3, 6, 2)
LU, QR = 3 * 2 * 6**3 / 3, 3 * 2 * 36 * (8 - 2)
LINALG, FFT, ATEN = torch.linalg, torch.fft, torch.ops.aten


class Computes(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


def sampled(mode: str) -> Callable[..., object]:
    return lambda image, points: functional.grid_sample(image, points, mode, align_corners=False)


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (LINALG.cholesky, (SQUARE,), 3 * 6**3 / 3),
        (LINALG.lu_factor, (SQUARE,), LU),
        (LINALG.det, (SQUARE,), LU),
        (LINALG.inv, (SQUARE,), 3 * 2 * 6**3),
        (LINALG.solve, (SQUARE, SIDE), LU + 3 * 2 * 36 * 2),
        (LINALG.qr, (TALL,), 2 * QR),
        (lambda a: LINALG.qr(a, mode="r"), (TALL,), QR),
        (lambda a: LINALG.qr(a.mT), (TALL,), 2 * QR),
        (LINALG.eigh, (SQUARE,), 3 * 9 * 6**3),
        (lambda a: ATEN._linalg_eigh(a, "L", False)[0], (SQUARE,), 3 * 4 * 6**3 / 3),
        (LINALG.svd, (TALL,), 3 * (14 * 8 * 36 + 8 * 6**3)),
        (lambda a: ATEN._linalg_svd(a, False, False)[1], (TALL,), 3 * 4 * 36 * (8 - 2)),
        (lambda a, b: LINALG.solve_triangular(a, b, upper=True), (SQUARE, SIDE), 3 * 36 * 2),
        (torch.cholesky_solve, (SIDE, SQUARE), 3 * 2 * 36 * 2),
        (LINALG.matrix_exp, (SQUARE,), 3 * 10 * 6**3),
        (FFT.fft, (torch.zeros(4, 8, dtype=torch.complex64),), 5 * 32 * 3),
        (FFT.rfft2, (torch.zeros(3, 4, 8),), 2.5 * 96 * 5),
        (FFT.irfft, (torch.zeros(4, 5, dtype=torch.complex64),), 2.5 * 32 * 3),
        (sampled("bilinear"), (torch.zeros(2, 3, 5, 5), torch.zeros(2, 4, 4, 2)), 2 * 4 * 96),
        (sampled("nearest"), (torch.zeros(2, 3, 5, 5, 5), torch.zeros(2, 4, 4, 4, 3)), 2 * 384),
        (functional.embedding_bag, (torch.zeros(4, 3, dtype=torch.int64), torch.zeros(9, 5)), 12 * 5),
        (torch.searchsorted, (torch.zeros(9), torch.zeros(4)), 4 * math.ceil(math.log2(9))),
        (lambda x: torch.logcumsumexp(x, 0), (torch.zeros(7, 5),), 35),
        (lambda x: torch.histc(x, 4, 0, 1), (torch.zeros(7),), 7),
        (lambda x: torch.kthvalue(x, 2), (torch.zeros(7, 5),), 35),
    ],
)  # fmt: skip
def test_an_op_has_the_flops_of_its_algorithm(function: Callable[..., object], inputs: tuple[Tensor, ...], expected: float) -> None:
    graph = inference(Computes(function), inputs, name="computes").graph
    assert not graph.uncounted
    counted = graph.flops[~graph.canonical_kind.among(["elementwise", "cast"])]
    assert counted.sum() == round(expected)
