"""The flops of ATen ops that multiply matrices, convolve or attend: one multiply-add is 2 flops.

A product has 2 x the elements of its left factor x the columns of its result. In a grouped product each row meets the
matrix of one group, so the groups' sizes don't matter; rows after the last group are counted, too, since their number
is a value. The shapes of attention count as they are: a mask, causal or other, saves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gnnplace.frontends.network.flops import CELL_FLOPS
from gnnplace.frontends.torch.calls import Call, tensors

_WITH_ADDEND = ("addmm", "addmv", "addr", "baddbmm", "addbmm", "_addmm_activation")
_OF_A_VECTOR = ("mv", "addmv", "dot", "vdot")
_OF_ROWS = (  # queries and keys have the shape (batch, sequence, heads, dimension)
    "_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace", "_flash_attention_backward",
    "_efficient_attention_forward", "_efficient_attention_backward",
)  # fmt: skip
_RNN_CELLS = {4: "LSTM", 3: "GRU"}  # by the number of gates


def product(call: Call) -> int:
    """The flops of a product of two matrices or two batches of them."""
    left = call.inputs[1 if call.base in _WITH_ADDEND else 0]
    return 2 * left.numel() * (1 if call.base in _OF_A_VECTOR else call.first_output.shape[-1])


def grouped(call: Call) -> int:
    """The flops of a grouped product; if the right factor's columns are grouped, each meets one matrix on the left."""
    left, right = call.inputs[:2]
    groups = left.shape[0] if left.dim() == 3 and right.dim() == 2 else 1
    return product(call) // max(1, groups)


def grouped_gradients(call: Call) -> int:
    """The flops of both gradients of transformers' grouped product."""
    return 4 * int(call.arguments["input"].numel()) * int(call.arguments["weight"].shape[-1])


def of_lists(call: Call) -> int:
    """The flops of products of two lists of matrices."""
    pairs = zip(tensors(call.arguments["self"]), tensors(call.arguments["mat2"]), strict=True)
    return sum(2 * left.numel() * right.shape[-1] for left, right in pairs)


def trilinear(call: Call) -> int:
    """The flops of sums of products of three tensors, broadcast along their expanded dimensions."""
    shapes = []
    for number in (1, 2, 3):
        shape = list(call.arguments[f"i{number}"].shape)
        for dim in sorted(call.arguments[f"expand{number}"]):
            shape.insert(dim, 1)
        shapes.append(shape)
    return 3 * math.prod(map(max, *shapes))


def distances(call: Call) -> int:
    """The flops of distances between points: 3 a coordinate and pair (difference, power, sum), 4 for its gradient.

    `_euclidean_dist` multiplies the points, each with its square and a 1 beside its coordinates.
    """
    points = call.arguments.get("x1", call.arguments.get("self"))
    assert points is not None
    if call.base == "_euclidean_dist":
        return 2 * int(call.first_output.numel()) * (int(points.shape[-1]) + 2)
    pairs = call.arguments["cdist" if "cdist" in call.base else "pdist"] if "backward" in call.base else None
    number = (call.first_output if pairs is None else pairs).numel()
    return (3 if pairs is None else 4) * int(number) * int(points.shape[-1])


def convolution(call: Call) -> int:
    """The flops of a convolution."""
    return _convolved(call.first_output, _image(call), call)


def convolution_gradients(call: Call) -> int:
    """The flops of a convolution for each gradient (of the input, of the weight) that is computed."""
    arguments = call.arguments
    return _convolved(arguments["grad_output"], _image(call), call) * sum(arguments["output_mask"][:2])


def _image(call: Call) -> Tensor:
    image: Tensor = call.arguments["input" if "input" in call.arguments else "self"]
    return image


def _convolved(output: Tensor, image: Tensor, call: Call) -> int:
    """The flops of a convolution.

    A transposed convolution has those of the convolution from its output to its input, whose gradient it is.
    """
    weight = call.arguments["weight"]
    produced = image if call.arguments.get("transposed", "transpose" in call.base) else output
    channels = weight.shape[2 if call.base == "conv_tbc" else 0]
    return 2 * produced.numel() * weight.numel() // max(1, channels)


def attention(call: Call) -> int:
    """The flops of attention's two products; five for its gradients, as the scores are computed a second time."""
    query, key, value = (call.arguments[name] for name in ("query", "key", "value"))
    pairs = _pairs(call.base, call.arguments, query, key)
    d, dv = query.shape[-1], value.shape[-1]
    return 2 * pairs * (3 * d + 2 * dv) if "backward" in call.base else 2 * pairs * (d + dv)


def _pairs(base: str, arguments: Mapping[str, Any], query: Tensor, key: Tensor) -> int:
    """The pairs of a query and a key in all heads.

    Packed sequences have values for lengths; each has the longest one at most.
    """
    lengths = arguments.get("cum_seq_q", arguments.get("cu_seqlens_q"))
    if base not in _OF_ROWS:
        return query.numel() // max(1, query.shape[-1]) * key.shape[-2]
    if lengths is None:
        return query.numel() // max(1, query.shape[-1]) * key.shape[-3]
    longest = [arguments[f"max_{name}" if "cum_seq_q" in arguments else f"max_seqlen_{name}"] for name in "qk"]
    return (lengths.shape[0] - 1) * query.shape[-2] * math.prod(map(int, longest))


def multi_head_attention(call: Call) -> int:
    """The flops of a fused attention layer: the products of queries, keys, values and outputs, and the attention."""
    query, key = call.arguments["query"], call.arguments["key"]
    return _attention_layer(query, key.shape[-2], call.arguments["embed_dim"])


def encoder_layer(call: Call) -> int:
    """The flops of a fused encoder layer: its attention and its two linear layers."""
    rows = call.arguments["src"]
    linear = sum(call.arguments[f"ffn_weight_{number}"].numel() for number in (1, 2))
    width = call.arguments["embed_dim"]
    return _attention_layer(rows, rows.shape[-2], width) + 2 * rows.numel() // rows.shape[-1] * linear


def _attention_layer(query: Tensor, num_keys: int, width: int) -> int:
    num_queries = query.numel() // query.shape[-1]
    return num_queries * (8 * width * width + 4 * num_keys * width)


def recurrent(call: Call) -> int:
    """The flops of a recurrent layer in one op: the products of its weights at each step, and its cells.

    Its gradient has twice as many products and as many for the cells.
    """
    rows = call.arguments["input"]
    steps = rows.numel() // rows.shape[-1]
    listed = call.arguments.get(
        "weight", [value for name, value in call.arguments.items() if name.startswith("weight")]
    )
    matrices = [weight for weight in tensors(listed) if weight.dim() == 2]
    hidden = call.arguments["hidden_size"]
    cell = CELL_FLOPS[_RNN_CELLS.get(matrices[0].shape[0] // hidden, "RNN")]
    cells = steps * hidden * (len(matrices) // 2) * cell  # a layer has a matrix for its input and one for its state
    products = 2 * steps * sum(weight.numel() for weight in matrices)
    return products * (2 if "backward" in call.base else 1) + cells
