"""The canonical kind of an ATen op and its costs: flops and the bytes that it touches.

The rules, by canonical kind (one multiply-add is 2 flops, any scalar function 1):

- matmul 2 m n k, batch_matmul 2 b m n k; conv 2 x output elements x kernel elements x input channels of a group, and
  as much again for each of the two gradients (input, weight) that a convolution's backward computes;
- attention 2 b h q k (d + dv), its backward 2 b h q k (3 d + 2 dv): the scores are computed a second time there;
- per output element: elementwise, activation and its gradient, random, cast 1; softmax 5; normalization 8, its gradient
  12; pool and pool_grad the elements of their window;
- interpolation and its gradient 2 per element of the resized image and neighbour; there are 2 (linear) or 4 (cubic)
  neighbours along each resized axis, and against aliasing as many times more as the axis shrinks;
- reduce, loss 1 per element of the largest input; scatter, embedding_grad 1 per added element;
- update, per parameter: 12 (Adam), 13 (AdamW), 2 (SGD), 5 (SGD with momentum), 2 more with L2 decay, 1 more with
  amsgrad; for other optimisers the flops of their own code (`updates.Counting`);
- ops that only move data 0.

A kind without a rule is `other`: it has no flops, so its bytes alone cost time, and the front-end lists it. Bytes are
the default of the execution model (all inputs and outputs) except for ops that touch less: see `bytes_accessed`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.torch.calls import Call, tensor_bytes, tensors

_KINDS = {
    "matmul": "mm addmm mv addmv dot vdot",
    "batch_matmul": "bmm baddbmm",
    "conv": "convolution",
    "conv_grad_input": "convolution_backward",
    "pool": (
        "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d max_pool3d_with_indices avg_pool3d "
        "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d upsample_linear1d upsample_bilinear2d "
        "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa"
    ),
    "pool_grad": (
        "max_pool2d_with_indices_backward avg_pool2d_backward _adaptive_avg_pool2d_backward "
        "max_pool3d_with_indices_backward avg_pool3d_backward _adaptive_avg_pool3d_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward upsample_linear1d_backward "
        "upsample_bilinear2d_backward upsample_trilinear3d_backward upsample_bicubic2d_backward "
        "_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward"
    ),
    "normalization": "native_layer_norm native_batch_norm native_group_norm _native_batch_norm_legit _fused_rms_norm",
    "normalization_grad": (
        "native_layer_norm_backward native_batch_norm_backward native_group_norm_backward _fused_rms_norm_backward"
    ),
    "softmax": "_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data",
    "loss": (
        "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward "
        "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits smooth_l1_loss "
        "smooth_l1_loss_backward huber_loss huber_loss_backward"
    ),
    "attention": (
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward"
    ),
    "embedding": "embedding",
    "embedding_grad": "embedding_dense_backward",
    "elementwise": (
        "add sub mul div rsub pow sqrt rsqrt exp expm1 log log1p neg abs reciprocal maximum minimum where eq ne lt gt "
        "le ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not sin cos erf sign sgn "
        "clamp clamp_min clamp_max floor ceil round addcmul addcdiv lerp masked_fill fmod remainder isnan isinf "
        "isfinite tril triu native_dropout_backward"
    ),
    "activation": "relu gelu silu tanh sigmoid elu leaky_relu hardtanh hardswish softplus mish glu log_sigmoid_forward",
    "activation_grad": (
        "threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward elu_backward "
        "leaky_relu_backward hardtanh_backward hardswish_backward softplus_backward mish_backward glu_backward "
        "log_sigmoid_backward"
    ),
    "reduce": (
        "sum mean amax amin max min prod var std var_mean argmax argmin any all logsumexp linalg_vector_norm cumsum "
        "topk sort upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
        "_upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward"
    ),
    "concat": "cat stack constant_pad_nd",
    "split": "split split_with_sizes unsafe_split unbind",
    "slice": "slice select slice_backward select_backward",
    "transpose": "t transpose permute",
    "reshape": (
        "view _unsafe_view expand squeeze unsqueeze clone copy as_strided alias detach repeat flip unfold diagonal "
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
        "_upsample_nearest_exact3d roll"
    ),
    "gather": "gather index index_select",
    "scatter": "scatter scatter_add scatter_reduce index_add index_put _unsafe_index_put index_copy",
    "cast": "_to_copy",
    "fill": (
        "zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty arange "
        "empty_strided new_empty_strided "
        "scalar_tensor fill zero lift_fresh_copy eye"
    ),
    "random": "bernoulli rand randn rand_like randn_like normal uniform native_dropout",
    "update": "_fused_adam _fused_adamw _fused_sgd gnnplace::update",
}  # fmt: skip
_CANONICAL = {kind: canonical for canonical, kinds in _KINDS.items() for kind in kinds.split()}

_PER_OUTPUT_ELEMENT = {
    "elementwise": 1,
    "activation": 1,
    "activation_grad": 1,
    "random": 1,
    "cast": 1,
    "softmax": 5,
    "normalization": 8,
}
_MOVES_DATA = frozenset(("embedding", "concat", "split", "slice", "transpose", "reshape", "gather", "fill"))
NORMALIZATION_GRAD_FLOPS = 12
_UPDATE_FLOPS = {"_fused_adam": 12, "_fused_adamw": 13, "_fused_sgd": 2}


def canonical_kind(call: Call) -> str:
    """The canonical kind of a call, shared by all frameworks; "other" for an unknown op.

    A convolution's backward is `conv_grad_input` if it computes the gradient of the input, else `conv_grad_weight`.
    """
    if call.base == "convolution_backward" and not call.arguments["output_mask"][0]:
        return "conv_grad_weight"
    return _CANONICAL.get(call.base, "other")


def flops(call: Call) -> int:
    """The flops of one call, by the rules above."""
    canonical = canonical_kind(call)
    if canonical in _MOVES_DATA or canonical == "other":
        return 0
    if canonical in _PER_OUTPUT_ELEMENT:
        return _PER_OUTPUT_ELEMENT[canonical] * _first_output(call).numel()
    return _RULES[canonical](call)


def bytes_accessed(call: Call) -> int | None:
    """The bytes that the op touches; None if these are all its inputs and outputs.

    A lookup reads the rows that it returns and their indices; a fill only writes; a loss over classes reads one column
    a row; a fused optimiser step reads all its arguments and writes those that it changes.
    """
    output_bytes = sum(tensor_bytes(tensor) for tensor in call.outputs if tensor is not None)
    index_bytes = sum(
        tensor_bytes(tensor) for tensor in call.inputs if tensor.dtype in (torch.int64, torch.int32, torch.bool)
    )
    match canonical_kind(call):
        case "embedding" | "gather":
            return 2 * output_bytes + index_bytes
        case "fill":
            return output_bytes
        case "random" if call.written:
            return output_bytes
        case "scatter" if call.written:
            return 3 * tensor_bytes(call.inputs[-1]) + index_bytes
        case "reshape" if call.base == "copy":
            return 2 * output_bytes
        case "loss" if call.base.startswith("nll_loss"):
            read_bytes = call.arguments["target"].numel() * call.arguments["self"].element_size()
            return index_bytes + read_bytes + output_bytes
        case "update":
            return sum(map(tensor_bytes, call.inputs)) + sum(map(tensor_bytes, call.written))
    return None


def workspace_bytes(call: Call) -> int:
    """The workspace of one call: a copy of the sorted tensor; two of the indices, for an embedding's gradient."""
    if call.base in ("sort", "topk"):
        return tensor_bytes(call.inputs[0])
    return 2 * tensor_bytes(call.arguments["indices"]) if call.base == "embedding_dense_backward" else 0


def _first_output(call: Call) -> Tensor:
    return next(tensor for tensor in call.outputs if tensor is not None)


def _matmul(call: Call) -> int:
    left, right = call.inputs[-2:]  # addmm and baddbmm have the addend first
    return 2 * left.numel() * (right.shape[-1] if right.dim() > 1 else 1)


def _conv(call: Call) -> int:
    return _conv_flops(_first_output(call), call.arguments["input"], call.arguments)


def _conv_grad(call: Call) -> int:
    one_gradient = _conv_flops(call.arguments["grad_output"], call.arguments["input"], call.arguments)
    return one_gradient * sum(call.arguments["output_mask"][:2])


def _conv_flops(output: Tensor, image: Tensor, arguments: Mapping[str, Any]) -> int:
    """The flops of a convolution.

    A transposed convolution has those of the convolution from its output to its input, whose gradient it is.
    """
    weight = arguments["weight"]
    produced = image if arguments["transposed"] else output
    return 2 * produced.numel() * weight.numel() // weight.shape[0]


def _attention(call: Call) -> int:
    query, key, value = (call.arguments[name] for name in ("query", "key", "value"))
    pairs = query.numel() // query.shape[-1] * key.shape[-2]
    d, dv = query.shape[-1], value.shape[-1]
    return 2 * pairs * (3 * d + 2 * dv) if call.base.endswith("backward") else 2 * pairs * (d + dv)


def _pool(call: Call) -> int:
    if "upsample" in call.base:
        return _interpolation(call)
    image = call.arguments["self"]
    small = call.arguments.get("grad_output", call.outputs[0])
    window = call.arguments.get("kernel_size")
    if window is None:  # adaptive: the windows tile the image
        return int(image.numel())
    return int(small.numel() * math.prod(window if len(window) > 1 else window * (3 if "pool3d" in call.base else 2)))


def _interpolation(call: Call) -> int:
    image = call.arguments["input_size"] if call.base.endswith("backward") else call.arguments["self"].shape
    resized = call.arguments.get("grad_output", _first_output(call))
    return network_flops.interpolation(image, resized.shape, 4 if "cubic" in call.base else 2, "_aa" in call.base)


def _normalization_grad(call: Call) -> int:
    return NORMALIZATION_GRAD_FLOPS * int(call.inputs[0].numel())


def _input_elements(call: Call) -> int:
    return max(tensor.numel() for tensor in call.inputs)


def _added_elements(call: Call) -> int:
    return call.inputs[-1].numel()


def _update(call: Call) -> int:
    arguments = call.arguments
    if call.base not in _UPDATE_FLOPS:
        return int(arguments["flops"])
    decay = 2 * (bool(arguments["weight_decay"]) and call.base != "_fused_adamw")
    momentum, amsgrad = 3 * bool(arguments.get("momentum")), bool(arguments.get("amsgrad"))
    per_element = _UPDATE_FLOPS[call.base] + momentum + decay + amsgrad
    return per_element * sum(tensor.numel() for tensor in tensors(arguments["self"]))


_RULES = {
    "matmul": _matmul, "batch_matmul": _matmul, "conv": _conv, "conv_grad_input": _conv_grad,
    "conv_grad_weight": _conv_grad,
    "attention": _attention, "pool": _pool, "pool_grad": _pool, "normalization_grad": _normalization_grad,
    "reduce": _input_elements, "loss": _input_elements, "scatter": _added_elements, "embedding_grad": _input_elements,
    "update": _update,
}  # fmt: skip
