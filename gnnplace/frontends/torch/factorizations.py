"""The flops of factorizations, solutions of linear systems and Fourier transforms, each over a batch of matrices.

Counts are the leading terms of Golub and Van Loan, Matrix Computations (4th edition), for an n x n matrix or an m x n
one with m >= n; a wide matrix counts as its transpose:

- Cholesky n^3 / 3, also LDL; LU n^2 (m - n / 3) (3.2, 4.2, 4.4); a determinant is an LU
- QR 2 n^2 (m - n / 3), and as much for its Q; k reflections of an m x n matrix 2 n k (2 m - k) (5.2)
- least squares by QR 2 n^2 (m - n / 3) (5.3)
- triangular solution n^2 a column, two of them after a factorization; an inverse is an LU and 4/3 n^3 (3.1, 3.4)
- eigenvalues 4/3 n^3 and with vectors 9 n^3 if symmetric (8.3); else 10 n^3, with vectors 25 n^3 (7.5)
- singular values 4 n^2 (m - n / 3), with vectors 14 m n^2 + 8 n^3; a pseudo-inverse has a product more (8.6)
- exponential 10 n^3: five products of a Taylor polynomial; the squarings depend on values
- Fourier transform 5 N log2 n of N complex values along dimensions of n values together, half of it for real ones
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import Tensor

from gnnplace.frontends.torch.calls import Call

Cost = Callable[[int, int], float]  # of one matrix with m rows and n columns, m >= n


def _lu(m: int, n: int) -> float:
    return n * n * (m - n / 3)


def _qr(m: int, n: int) -> float:
    return 2 * n * n * (m - n / 3)


def _cholesky(_: int, n: int) -> float:
    return n**3 / 3


def _vectors(m: int, n: int) -> float:
    return 14.0 * m * n * n + 8.0 * n**3


_OF_A_MATRIX: Mapping[str, Cost] = {
    "linalg_cholesky_ex": _cholesky, "cholesky": _cholesky, "linalg_ldl_factor_ex": _cholesky,
    "cholesky_inverse": lambda _, n: 2 * n**3 / 3,
    "_linalg_det": _lu, "_linalg_slogdet": _lu, "linalg_lu": _lu, "linalg_lu_factor_ex": _lu,
    "linalg_inv_ex": lambda _, n: 2 * n**3,
    "geqrf": _qr, "linalg_householder_product": _qr, "linalg_lstsq": _qr,
    "linalg_eig": lambda _, n: 25 * n**3, "_linalg_eigvals": lambda _, n: 10 * n**3,
    "linalg_pinv": lambda m, n: _vectors(m, n) + 2 * m * n * n,
    "linalg_matrix_exp": lambda _, n: 10 * n**3,
}  # fmt: skip
# the factorization before a solution, the triangular solutions after it, and the argument that holds the matrix
_SOLUTIONS: Mapping[str, tuple[Cost | None, int, str]] = {
    "_linalg_solve_ex": (_lu, 2, "A"), "linalg_lu_solve": (None, 2, "LU"), "linalg_ldl_solve": (None, 2, "LD"),
    "cholesky_solve": (None, 2, "input2"), "_cholesky_solve_helper": (None, 2, "A"),
    "linalg_solve_triangular": (None, 1, "self"), "triangular_solve": (None, 1, "A"),
}  # fmt: skip


def factorization(call: Call) -> int:
    """The flops of a factorization, and of what is computed by one alone."""
    matrix, arguments = call.inputs[0], call.arguments
    match call.base:
        case "linalg_qr":
            return _each(matrix, lambda m, n: _qr(m, n) * (1 if arguments.get("mode", "reduced") == "r" else 2))
        case "_linalg_eigh":
            return _each(matrix, lambda _, n: 9 * n**3 if arguments.get("compute_v", True) else 4 * n**3 / 3)
        case "_linalg_svd":
            vectors = arguments.get("compute_uv", True)
            return _each(matrix, lambda m, n: _vectors(m, n) if vectors else 4 * n * n * (m - n / 3))
        case "ormqr":
            other, reflections = arguments["input3"], matrix.shape[-1]
            m, n = other.shape[-2:] if arguments.get("left", True) else reversed(other.shape[-2:])
            return _batch(other) * 2 * n * reflections * (2 * m - reflections)
    return _each(matrix, _OF_A_MATRIX[call.base])


def solution(call: Call) -> int:
    """The flops of the solution of linear systems."""
    factorized, triangles, name = _SOLUTIONS[call.base]
    matrix = call.arguments[name]
    before = 0 if factorized is None else _each(matrix, factorized)
    return before + triangles * int(call.first_output.numel()) * int(matrix.shape[-1])


def fourier(call: Call) -> int:
    """The flops of a Fourier transform; a real one has half of them."""
    real = {"_fft_r2c": call.inputs[0], "_fft_c2r": call.first_output}.get(call.base)
    values = call.inputs[0] if real is None else real
    together = math.prod(values.shape[dim] for dim in call.arguments["dim"])
    return round((5 if real is None else 2.5) * values.numel() * math.log2(max(1, together)))


FACTORIZATIONS = (*_OF_A_MATRIX, "linalg_qr", "_linalg_eigh", "_linalg_svd", "ormqr")
SOLUTIONS = tuple(_SOLUTIONS)


def _each(matrices: Tensor, cost: Cost) -> int:
    """The flops of every matrix of a batch."""
    n, m = sorted(matrices.shape[-2:])
    return round(_batch(matrices) * cost(m, n))


def _batch(matrices: Tensor) -> int:
    return math.prod(matrices.shape[:-2])
