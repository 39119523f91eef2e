"""PyTorch's counter of FLOPs, with rules for the products that it does not count (`counter_is_wrong.json` lists them)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

PATH = Path(__file__).parent / "counter_is_wrong.json"
Shape = Sequence[int]


def counter() -> FlopCounterMode:
    """A counter of the FLOPs of all products."""
    mode = FlopCounterMode(display=False, custom_mapping=dict(_rules()))
    mode.mod_tracker = _Nowhere()
    return mode


class _Nowhere(nullcontext):
    """In the place of the counter's hooks, which tell modules apart: they stop some networks that run without them."""

    parents = frozenset(("Global",))


def reasons() -> dict[str, str]:
    """Why the counter alone is wrong, by ATen op."""
    return json.loads(PATH.read_text())


def _rules() -> list[tuple[Any, Callable[..., int]]]:
    return [(getattr(torch.ops.aten, name), _RULES[name]) for name in reasons()]


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


def _convolution_backward(gradient: Shape, inputs: Shape, weight: Shape, *rest: Any, out_shape: Any, **__: Any) -> int:
    """As much as the forward for each of the two gradients; `weight` has the channels of one group."""
    transposed, wanted = rest[4], rest[7]
    places = inputs if transposed else gradient
    return 2 * places[0] * prod(places[2:]) * prod(weight) * sum(map(bool, wanted[:2]))


def _rnn_layer(inputs: Shape, of_inputs: Shape, of_state: Shape, *_: Any, **__: Any) -> int:
    return 2 * prod(inputs[:2]) * (prod(of_inputs) + prod(of_state))


def _rnn_layer_backward(*shapes: Any, **__: Any) -> int:
    return 2 * _rnn_layer(*shapes)


_RULES: dict[str, Callable[..., int]] = {
    "mv": _mv,
    "addmv": _addmv,
    "convolution_backward": _convolution_backward,
    "dot": _dot,
    "mkldnn_rnn_layer": _rnn_layer,
    "mkldnn_rnn_layer_backward": _rnn_layer_backward,
    "vdot": _dot,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_grouped_mm": _grouped,
}
