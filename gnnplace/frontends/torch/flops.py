"""The costs of an ATen call: its flops, the bytes that it touches and its workspace.

The rules, by canonical kind (`kinds`); one multiply-add is 2 flops, any scalar function 1:

- matmul 2 m n k, batch_matmul 2 b m n k, grouped or not (`products`); linear algebra by the leading terms of its
  algorithm, Fourier transforms 5 n log2 n (`factorizations`); distances 3 per pair and coordinate, their gradient 4;
- conv 2 x output elements x kernel elements x input channels of a group, and as much again for each of the two
  gradients (input, weight) that a convolution's backward computes;
- attention 2 b h q k (d + dv), its backward 2 b h q k (3 d + 2 dv): the scores are computed a second time there;
- per output element: elementwise, activation and its gradient, random, cast 1; softmax 5; normalization 8, its gradient
  12; a recurrent cell 17 (LSTM) or 14 (GRU); pool and pool_grad the elements of their window;
- interpolation and its gradient 2 per element of the resized image and neighbour; there are 2 (linear), 4 (cubic) or 6
  (Lanczos) neighbours along each resized axis, and against aliasing as many times more as the axis shrinks; sampling at
  points likewise, each gradient again as much;
- reduce, loss 1 per element of the largest input, a CTC loss 6 per step and state; scatter, embedding_grad 1 per added
  element; a sum of looked-up rows 1 per looked-up element; a search log2 of its range per value;
- update, per parameter: 12 (Adam), 13 (AdamW), 2 (SGD), 5 (SGD with momentum), 2 more with L2 decay, 1 more with
  amsgrad; for other optimisers the flops of their own code (`updates.Counting`);
- ops that only move data 0.

A kind without a rule is `other`: it has no flops, so its bytes alone cost time, and its graph lists it. Bytes are
the default of the execution model (all inputs and outputs) except for ops that touch less: see `bytes_accessed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.torch import factorizations, products
from gnnplace.frontends.torch.calls import Call, tensor_bytes, tensors
from gnnplace.frontends.torch.kinds import canonical_kind

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
_UPDATE_FLOPS = {"_fused_adam": 12, "_fused_adamw": 13, "_fused_sgd": 2, "_fused_adagrad": 5}


def flops(call: Call) -> int:
    """The flops of one call, by the rules above."""
    canonical = canonical_kind(call)
    if call.base in _BY_NAME:
        return _BY_NAME[call.base](call)
    if canonical in _MOVES_DATA or canonical == "other":
        return 0
    if call.base.startswith("_foreach_"):
        return sum(tensor.numel() for tensor in tensors(call.arguments["self"]))
    if canonical in _PER_OUTPUT_ELEMENT:
        return _PER_OUTPUT_ELEMENT[canonical] * call.first_output.numel()
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
        case "embedding" if call.base != "embedding":
            rows = call.arguments["weight"]
            return call.arguments["indices"].numel() * rows.shape[-1] * rows.element_size() + index_bytes + output_bytes
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


def _pool(call: Call) -> int:
    if "upsample" in call.base:
        return _interpolation(call)
    image = call.arguments["self"]
    small = call.arguments.get("grad_output", call.outputs[0])
    window = call.arguments.get("kernel_size")
    if window is None:  # adaptive: the windows tile the image
        return int(image.numel())
    axes = next(axes for axes in (1, 2, 3) if f"pool{axes}d" in call.base)
    return int(small.numel() * math.prod(window if len(window) > 1 else window * axes))


def _interpolation(call: Call) -> int:
    image = call.arguments["input_size"] if call.base.endswith("backward") else call.arguments["self"].shape
    resized = call.arguments.get("grad_output", call.first_output)
    neighbours = 4 if "cubic" in call.base else 6 if "lanczos" in call.base else 2
    return network_flops.interpolation(image, resized.shape, neighbours, "_aa" in call.base)


def _sampling(call: Call) -> int:
    """The flops of sampling an image at points, or of its gradients."""
    axes = call.arguments["grid"].shape[-1]
    along = (2, 1, 4)[call.arguments.get("interpolation_mode", 0)]  # bilinear, nearest, bicubic
    sampled = call.arguments.get("grad_output", call.first_output)
    gradients = sum(call.arguments.get("output_mask", (True, True))) if "backward" in call.base else 1
    return 2 * int(sampled.numel()) * int(along**axes) * gradients


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


def _looked_up(call: Call) -> int:
    """The elements of looked-up rows, twice if each row has a weight."""
    rows = call.arguments.get("weight", call.arguments.get("grad", call.arguments.get("self")))
    weighted = call.arguments.get("per_sample_weights") is not None or "per_sample" in call.base
    return int(call.arguments["indices"].numel() * rows.shape[-1]) * (2 if weighted else 1)


def _search(call: Call) -> int:
    values, bounds = call.arguments["self"], call.arguments.get("sorted_sequence", call.arguments.get("boundaries"))
    searched = values.numel() if isinstance(values, Tensor) else 1
    return int(searched) * max(1, math.ceil(math.log2(max(1, bounds.shape[-1]))))


def _ctc(call: Call) -> int:
    """The flops of a CTC loss: its states are the labels and the blanks around them."""
    steps, labels = call.arguments["log_probs"], call.arguments["targets"]
    longest = labels.shape[-1] if labels.dim() > 1 else max(map(int, call.arguments["target_lengths"]), default=0)
    return 6 * int(steps.numel() // max(1, steps.shape[-1])) * (2 * longest + 1)


def _cell(call: Call) -> int:
    """The flops of a recurrent cell after its products; as many for its gradient."""
    states = call.arguments.get("hx", call.arguments.get("cx", call.arguments.get("grad_hy")))
    return network_flops.CELL_FLOPS["LSTM" if "lstm" in call.base else "GRU"] * int(states.numel())


Rule = Callable[[Call], int]
_RULES: dict[str, Rule] = {
    "matmul": products.product, "batch_matmul": products.product, "conv": products.convolution,
    "conv_grad_input": products.convolution_gradients, "conv_grad_weight": products.convolution_gradients,
    "attention": products.attention, "pool": _pool, "pool_grad": _pool, "normalization_grad": _normalization_grad,
    "reduce": _input_elements, "loss": _input_elements, "scatter": _added_elements, "embedding_grad": _input_elements,
    "update": _update,
}  # fmt: skip
_BY_NAMES: dict[Rule, str] = {
    products.grouped: "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2",
    products.grouped_gradients: "transformers::grouped_mm_fallback_backward",
    products.of_lists: "_foreach_mm",
    products.trilinear: "_trilinear",
    products.distances: "_cdist_forward _cdist_backward _euclidean_dist _pdist_forward _pdist_backward",
    products.multi_head_attention: "_native_multi_head_attention",
    products.encoder_layer: "_transformer_encoder_layer_fwd",
    products.recurrent: (
        "mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward"
    ),
    factorizations.factorization: " ".join(factorizations.FACTORIZATIONS),
    factorizations.solution: " ".join(factorizations.SOLUTIONS),
    factorizations.fourier: "_fft_c2c _fft_r2c _fft_c2r",
    _sampling: (
        "grid_sampler_2d _grid_sampler_2d_cpu_fallback grid_sampler_3d cudnn_grid_sampler grid_sampler_2d_backward "
        "_grid_sampler_2d_cpu_fallback_backward grid_sampler_3d_backward cudnn_grid_sampler_backward"
    ),
    _looked_up: (
        "_embedding_bag _embedding_bag_forward_only _embedding_bag_backward _embedding_bag_dense_backward "
        "_embedding_bag_per_sample_weights_backward embedding_renorm"
    ),
    _search: "searchsorted bucketize",
    _ctc: "_ctc_loss _ctc_loss_backward _cudnn_ctc_loss miopen_ctc_loss",
    _cell: (
        "_thnn_fused_lstm_cell _thnn_fused_gru_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell_backward"
    ),
}
_BY_NAME = {name: rule for rule, names in _BY_NAMES.items() for name in names.split()}
