"""What an op of TensorFlow computes and moves: flops, bytes accessed, the sizes of its tensors and of its variable.

The rules, per canonical kind (an fma counts two; any scalar function counts one, as in TensorFlow's own profiler):

| kind | flops |
|---|---|
| matmul, batch_matmul | 2 x output elements x contracted dimension; Einsum: 2 x the product of all its dimensions |
| conv | 2 x output elements x kernel area x input channels (of a filter); both gradients cost the same |
| pool, pool_grad | pooled elements x window |
| interpolation, its gradient | 2 an element of the resized image and neighbour along each axis (see `KERNELS`) |
| normalization, its gradient | 8 and 12 an element (mean, variance, scale, shift; two sums and the product rule) |
| softmax; loss | 5 an element; 8 a logit (the loss computes its own gradient) |
| elementwise, activation, gradients of it, random, cast | 1 an output element (AddN: inputs - 1) |
| reduce; scatter | 1 an element of the (largest) input |
| update | by kernel, see `UPDATES`, an element of the variable (of the rows, where sparse) |
| moves and views, fills, variables, control | 0 |
| other | 0: its time is that of its bytes |

Bytes are those of the inputs and outputs but for the kinds that touch less (gathers and slices read what they yield) or
more (updates read and write variables, whose handles have no bytes). Convolutions are taken as implicit products: no
workspace.
"""

from __future__ import annotations

import math

import tensorflow as tf

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.tensorflow.kinds import canonical_kind

# Update kernels: flops an element, and how often an element of the variable's size is read or written (its gradient
# included).
UPDATES = {
    "AssignVariableOp": (0, 2), "AssignAddVariableOp": (1, 3), "AssignSubVariableOp": (1, 3),
    "ResourceScatterUpdate": (0, 2), "ResourceScatterAdd": (1, 3), "ResourceScatterSub": (1, 3),
    "ResourceApplyGradientDescent": (2, 3), "ResourceApplyMomentum": (4, 5), "ResourceApplyKerasMomentum": (4, 5),
    "ResourceApplyAdagrad": (5, 5), "ResourceApplyAdagradV2": (6, 5), "ResourceApplyAdam": (12, 7),
    "ResourceApplyRMSProp": (10, 7), "ResourceApplyCenteredRMSProp": (14, 9), "ResourceApplyFtrl": (12, 7),
    "ResourceApplyFtrlV2": (14, 7), "ResourceApplyAdadelta": (12, 7), "ResourceSparseApplyMomentum": (4, 5),
    "ResourceSparseApplyAdagrad": (5, 5), "ResourceSparseApplyAdagradV2": (6, 5), "ResourceSparseApplyRMSProp": (10, 7),
}  # fmt: skip

# How many neighbours an interpolated element has along each axis.
KERNELS = {
    "ResizeArea": 1, "ResizeBilinear": 2, "ResizeBicubic": 4,
    "box": 1, "triangle": 2, "gaussian": 3, "keyscubic": 4, "mitchellcubic": 4, "lanczos1": 2, "lanczos3": 6,
    "lanczos5": 10,
}  # fmt: skip

READ_WHAT_THEY_YIELD = frozenset(
    ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd", "Slice", "StridedSlice")
)
ONE_AN_OUTPUT_ELEMENT = frozenset(("elementwise", "activation", "activation_grad", "random", "cast"))
PER_INPUT_ELEMENT = {"reduce": 1, "normalization": 8, "normalization_grad": 12, "softmax": 5, "loss": 8}
STRING_BYTES = 24  # the header of a tstring; what it points to is not known before the step


def shape_of(tensor: tf.Tensor) -> tuple[int, ...]:
    """The static shape of a tensor; where TensorFlow has none, the largest that the op can yield.

    Raises ValueError where no rule says how large that is.
    """
    if tensor.shape.is_fully_defined():
        return tuple(tensor.shape.as_list())
    kind = tensor.op.type
    if kind == "Unique" and tensor.value_index == 0:  # at most every element once
        return shape_of(tensor.op.inputs[0])
    if kind == "BroadcastGradientArgs":  # at most every dimension once
        return max(shape_of(shape) for shape in tensor.op.inputs)
    # reserved for the gradient; empty in the unfused kernel
    if kind.startswith("FusedBatchNorm") and tensor.value_index > 2:
        return (0,)
    raise ValueError(
        f"tensor {tensor.name!r} of a {kind}: its shape {tensor.shape} is not static; give placeholders full shapes"
    )


def bytes_of(tensor: tf.Tensor) -> int:
    """The bytes of a tensor; 0 for a resource handle. Raises ValueError for variants."""
    if tensor.dtype == tf.resource:
        return 0
    if tensor.dtype == tf.variant:
        raise ValueError(
            f"tensor {tensor.name!r}: a variant (list, dataset, ragged) has no size that is known before the step"
        )
    return math.prod(shape_of(tensor)) * (STRING_BYTES if tensor.dtype == tf.string else tensor.dtype.size)


def persistent_bytes(op: tf.Operation) -> int:
    """The bytes of the variable or optimiser slot that a handle op owns, else 0.

    Raises ValueError where its shape is not known.
    """
    if op.type != "VarHandleOp":
        return 0
    shape = tf.TensorShape(op.get_attr("shape"))
    if not shape.is_fully_defined():
        raise ValueError(f"variable {op.name!r}: its shape {shape} is not static")
    return int(shape.num_elements()) * int(op.get_attr("dtype").size)


def flops(op: tf.Operation) -> int:
    """The arithmetic of one op, by the rules at the top of this file."""
    kind = canonical_kind(op.type)
    if op.type == "Einsum":
        return _einsum(op)
    if kind in ("matmul", "batch_matmul"):
        transposed = op.get_attr("transpose_a") if kind == "matmul" else op.get_attr("adj_x")
        return 2 * _elements(op.outputs[0]) * shape_of(op.inputs[0])[-2 if transposed else -1]
    if kind in ("conv", "conv_grad_input", "conv_grad_weight"):
        return _convolution(op, kind)
    if op.type.startswith(("Resize", "ScaleAndTranslate")) and kind in ("pool", "pool_grad"):
        return _interpolation(op)
    if kind in ("pool", "pool_grad"):
        return _elements(op.outputs[0] if kind == "pool" else op.inputs[-1]) * _window(op)
    if kind == "update":
        return UPDATES[op.type][0] * _elements(_updated(op))
    if op.type == "AddN":
        return (len(op.inputs) - 1) * _elements(op.outputs[0])
    if kind in ONE_AN_OUTPUT_ELEMENT:
        return _elements(op.outputs[0])
    if kind == "scatter":
        return max(_elements(tensor) for tensor in op.inputs)
    if kind in PER_INPUT_ELEMENT:
        return PER_INPUT_ELEMENT[kind] * _elements(op.inputs[0])
    return 0


def bytes_accessed(op: tf.Operation) -> int | None:
    """The memory traffic of one op where it is not that of its inputs and outputs, else None."""
    if op.type in READ_WHAT_THEY_YIELD:
        indices = sum(bytes_of(tensor) for tensor in op.inputs[1:])
        return 2 * bytes_of(op.outputs[0]) + indices
    if op.type in UPDATES:
        return UPDATES[op.type][1] * bytes_of(_updated(op))
    if op.type in ("ZerosLike", "OnesLike"):
        return bytes_of(op.outputs[0])
    return None


def _elements(tensor: tf.Tensor) -> int:
    return math.prod(shape_of(tensor))


def _convolution(op: tf.Operation, kind: str) -> int:
    """2 x elements of the convolution's output x its filter's elements for
    each output channel; the same in all three directions.
    """
    output = op.outputs[0] if kind == "conv" else op.inputs[2]
    filters = shape_of(op.outputs[0] if kind == "conv_grad_weight" else op.inputs[1])
    per_output = math.prod(filters[:-2]) if op.type.startswith("Depthwise") else math.prod(filters[:-1])
    return 2 * _elements(output) * per_output


def _einsum(op: tf.Operation) -> int:
    """2 x the size of each label once; nothing where it only moves one
    tensor, an addition an element where it sums that.
    """
    equation = op.get_attr("equation").decode()
    operands, _, result = equation.partition("->")
    if len(op.inputs) == 1:
        return _elements(op.inputs[0]) if set(operands) - set(result) else 0
    sizes: dict[str, int] = {}
    for labels, tensor in zip(operands.split(","), op.inputs, strict=True):
        sizes |= _label_sizes(labels, shape_of(tensor))
    return 2 * math.prod(sizes.values())


def _label_sizes(labels: str, shape: tuple[int, ...]) -> dict[str, int]:
    """The size of each label; those of an ellipsis count from its end, as they broadcast."""
    before, ellipsis, after = labels.partition("...")
    num_more = len(shape) - len(before) - len(after)
    more = [f"...{num_more - index}" for index in range(num_more)] if ellipsis else []
    return dict(zip([*before, *more, *after], shape, strict=True))


def _interpolation(op: tf.Operation) -> int:
    """The gradient of one does the arithmetic of that; a kernel that is
    widened where the image shrinks reaches further.
    """
    image, resized = (op.inputs[1], op.inputs[0]) if op.type.endswith("Grad") else (op.inputs[0], op.outputs[0])
    kernel, widened = op.type.removesuffix("Grad"), op.type == "ResizeArea"
    if kernel == "ScaleAndTranslate":
        kernel, widened = op.get_attr("kernel_type").decode(), op.get_attr("antialias")
    return network_flops.interpolation(shape_of(image), shape_of(resized), KERNELS[kernel], widened)


def _window(op: tf.Operation) -> int:
    return math.prod(op.get_attr("ksize"))


def _updated(op: tf.Operation) -> tf.Tensor:
    """The value, gradient or rows that an update op writes into its variable: as large as what it touches there."""
    names = [argument.name for argument in op.op_def.input_arg]
    return next(
        tensor for tensor, name in zip(op.inputs, names, strict=True) if name in ("value", "updates", "grad", "delta")
    )
