"""The costs of a TensorFlow op: flops, bytes accessed, the sizes of its tensors and of its variable.

The rules, by canonical kind (one multiply-add is 2 flops, any scalar function 1, as in TensorFlow's own profiler):

| kind | flops |
|---|---|
| matmul, batch_matmul | 2 x output elements x contracted dimension; Einsum: 2 x the product of all its dimensions |
| conv | 2 x output elements x kernel area x input channels (of a filter); both gradients cost the same |
| pool, pool_grad | pooled elements x window; Dilation2D 2 x that, since it adds a filter |
| interpolation, its gradient | 2 an element of the resized image and neighbour along each axis (see `KERNELS`) |
| normalization, its gradient | 8 and 12 an element (mean, variance, scale, shift; two sums and the product rule) |
| softmax; loss | 5 an element; 8 a logit (the loss computes its own gradient) |
| elementwise, activation, gradients of it, random, cast | 1 an output element (AddN: inputs - 1) |
| reduce; scatter | 1 an element of the (largest) input |
| update | by kernel (see `UPDATES`) an element of the variable, or of the updated rows if sparse |
| moves and views, fills, variables, control | 0 |
| other | 0: its time is that of its bytes |

Bytes are those of the inputs and outputs, except for kinds that touch less (gathers and slices read as much as they
yield) or more (updates read and write variables, whose handles have no bytes). Convolutions count as implicit matrix
products, without workspace.
"""

from __future__ import annotations

import math

import tensorflow as tf

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.tensorflow.kinds import canonical_kind

# Update kernels: flops an element, and the number of reads and writes an element (of variable, slots and gradient).
UPDATES = {
    "AssignVariableOp": (0, 2), "AssignAddVariableOp": (1, 3), "AssignSubVariableOp": (1, 3),
    "ResourceScatterUpdate": (0, 2), "ResourceScatterAdd": (1, 3), "ResourceScatterSub": (1, 3),
    "ResourceApplyGradientDescent": (2, 3), "ResourceApplyMomentum": (4, 5), "ResourceApplyKerasMomentum": (4, 5),
    "ResourceApplyAdagrad": (5, 5), "ResourceApplyAdagradV2": (6, 5), "ResourceApplyAdam": (12, 7),
    "ResourceApplyRMSProp": (10, 7), "ResourceApplyCenteredRMSProp": (14, 9), "ResourceApplyFtrl": (12, 7),
    "ResourceApplyFtrlV2": (14, 7), "ResourceApplyAdadelta": (12, 7), "ResourceSparseApplyMomentum": (4, 5),
    "ResourceSparseApplyAdagrad": (5, 5), "ResourceSparseApplyAdagradV2": (6, 5), "ResourceSparseApplyRMSProp": (10, 7),
}  # fmt: skip

# The number of neighbours of an interpolated element along each axis.
KERNELS = {
    "ResizeArea": 1, "ResizeBilinear": 2, "ResizeBicubic": 4,
    "box": 1, "triangle": 2, "gaussian": 3, "keyscubic": 4, "mitchellcubic": 4, "lanczos1": 2, "lanczos3": 6,
    "lanczos5": 10,
}  # fmt: skip

PARTIAL_READERS = frozenset(  # they read as much as they yield
    ("Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd", "Slice", "StridedSlice")
)
ONE_AN_OUTPUT_ELEMENT = frozenset(("elementwise", "activation", "activation_grad", "random", "cast"))
PER_INPUT_ELEMENT = {"reduce": 1, "normalization": 8, "normalization_grad": 12, "softmax": 5, "loss": 8}
STRING_BYTES = 24  # the header of a tstring; its text is not known before the step


def shape_of(tensor: tf.Tensor) -> tuple[int, ...]:
    """The static shape of a tensor; if TensorFlow has none, the largest shape that the op can yield.

    Raises ValueError if no rule bounds the shape.
    """
    if tensor.shape.is_fully_defined():
        return tuple(tensor.shape.as_list())
    kind = tensor.op.type
    if kind == "Unique" and tensor.value_index == 0:  # all elements are distinct at most
        return shape_of(tensor.op.inputs[0])
    if kind == "BroadcastGradientArgs":  # all dimensions at most
        return max(shape_of(shape) for shape in tensor.op.inputs)
    # outputs reserved for the gradient, which the unfused kernel leaves empty
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
    """The bytes of the variable or optimiser slot of a handle op; 0 for other ops.

    Raises ValueError if the shape is not static.
    """
    if op.type != "VarHandleOp":
        return 0
    shape = tf.TensorShape(op.get_attr("shape"))
    if not shape.is_fully_defined():
        raise ValueError(f"variable {op.name!r}: its shape {shape} is not static")
    return int(shape.num_elements()) * int(op.get_attr("dtype").size)


def flops(op: tf.Operation) -> int:
    """The flops of one op, by the rules above."""
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
    if op.type == "Dilation2D":
        return 2 * _elements(op.outputs[0]) * math.prod(shape_of(op.inputs[1])[:2])
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
    """The memory traffic of one op; None if it is the sum of its inputs and outputs."""
    if op.type in PARTIAL_READERS:
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
    """2 x elements of the convolution's output x elements of its filter an output channel, also for both gradients."""
    output = op.outputs[0] if kind == "conv" else op.inputs[2]
    filters = shape_of(op.outputs[0] if kind == "conv_grad_weight" else op.inputs[1])
    per_output = math.prod(filters[:-2]) if op.type.startswith("Depthwise") else math.prod(filters[:-1])
    return 2 * _elements(output) * per_output


def _einsum(op: tf.Operation) -> int:
    """2 x the product of the sizes of all labels.

    With a single operand it is 0 for a transposition and 1 an element of the operand for a sum.
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
    """The size of each label; the unnamed labels of an ellipsis are numbered from its end, as they broadcast."""
    before, ellipsis, after = labels.partition("...")
    num_more = len(shape) - len(before) - len(after)
    more = [f"...{num_more - index}" for index in range(num_more)] if ellipsis else []
    return dict(zip([*before, *more, *after], shape, strict=True))


def _interpolation(op: tf.Operation) -> int:
    """The flops of an interpolation; its gradient has the same."""
    image, resized = (op.inputs[1], op.inputs[0]) if op.type.endswith("Grad") else (op.inputs[0], op.outputs[0])
    kernel, widened = op.type.removesuffix("Grad"), op.type == "ResizeArea"
    if kernel == "ScaleAndTranslate":
        kernel, widened = op.get_attr("kernel_type").decode(), op.get_attr("antialias")
    return network_flops.interpolation(shape_of(image), shape_of(resized), KERNELS[kernel], widened)


def _window(op: tf.Operation) -> int:
    return math.prod(op.get_attr("ksize"))


def _updated(op: tf.Operation) -> tf.Tensor:
    """The value, gradient or rows by which an update op changes its variable, as large as the part that it changes."""
    names = [argument.name for argument in op.op_def.input_arg]
    return next(
        tensor for tensor, name in zip(op.inputs, names, strict=True) if name in ("value", "updates", "grad", "delta")
    )
