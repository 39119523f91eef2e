"""PyTorch's counter of FLOPs, with rules for the products that it does not count (`counter_is_wrong.json` lists them)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

PATH = Path(__file__).parent / "counter_is_wrong.json"
Shape = Sequence[int]


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """Counts the FLOPs of all products within the context, where kernels that the counter can't see into are taken apart."""
    mode = FlopCounterMode(display=False, custom_mapping=dict(_rules()))
    mode.mod_tracker = _Nowhere()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.backends.mkldnn.flags(enabled=False), mode:
            yield mode
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _Nowhere(nullcontext):
    """In the place of the counter's hooks, which tell modules apart: they stop some networks that run without them."""

    parents = frozenset(("Global",))


def reasons() -> dict[str, str]:
    """Why the counter alone is wrong, by ATen op."""
    return json.loads(PATH.read_text())


def _rules() -> list[tuple[Any, Callable[..., int]]]:
    return [(getattr(torch.ops.aten, name), rule) for name, rule in _RULES.items()]


def _mv(matrix: Shape, vector: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(matrix)


def _addmv(_: Shape, matrix: Shape, vector: Shape, *__: Any, **___: Any) -> int:
    return 2 * prod(matrix)


def _dot(vector: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(vector)


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[-2] * (width + value[-1])


def _attention_backward(_: Shape, query: Shape, key: Shape, value: Shape, *__: Any, **___: Any) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[-2] * (3 * width + 2 * value[-1])


def _grouped(rows: Shape, matrices: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """Each row meets one matrix; the product over groups of columns makes a matrix for each group."""
    return 2 * prod(rows) * matrices[-1]


def _triangular(matrix: Shape, right: Shape, *_: Any, out_shape: Shape, **__: Any) -> int:
    """Each column of `right`, or each row if the matrix stands to the right, meets each element of one triangle once."""
    return prod(out_shape) * matrix[-1]


def _trilinear(first: Shape, second: Shape, third: Shape, *expanded: Sequence[int], **_: Any) -> int:
    """Two products and a sum for each element of three tensors, broadcast along their expanded dimensions (`Bilinear`)."""
    shapes = [list(shape) for shape in (first, second, third)]
    for shape, dims in zip(shapes, expanded, strict=False):
        for dim in sorted(dims):
            shape.insert(dim, 1)
    return 3 * prod(map(max, *shapes))


def _distances(left: Shape, right: Shape, *_: Any, **__: Any) -> int:
    """A product of the points, each with its square and a 1 beside its coordinates."""
    return 2 * prod(left[:-1]) * right[-2] * (left[-1] + 2)


def _convolution_backward(gradient: Shape, inputs: Shape, weight: Shape, *rest: Any, out_shape: Any, **__: Any) -> int:
    """As much as the forward for each of the two gradients; `weight` has the channels of one group."""
    transposed, wanted = rest[4], rest[7]
    places = inputs if transposed else gradient
    return 2 * places[0] * prod(places[2:]) * prod(weight) * sum(map(bool, wanted[:2]))


APART = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd", "mkldnn_rnn_layer")
_RULES: dict[str, Callable[..., int]] = {
    "_euclidean_dist": _distances,
    "_trilinear": _trilinear,
    "mv": _mv,
    "addmv": _addmv,
    "convolution_backward": _convolution_backward,
    "dot": _dot,
    "vdot": _dot,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_grouped_mm": _grouped,
    "linalg_solve_triangular": _triangular,
}
