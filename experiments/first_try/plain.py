"""A run by plain PyTorch or ONNX Runtime: the bytes that persist from step to step, and the FLOPs of products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from experiments.first_try.cases import Case, Kind, OnnxCase, TorchCase
from experiments.first_try.counter import counting
from gnnplace.frontends.network.graph import MAX_FOLDED_ELEMENTS
from gnnplace.frontends.torch.known_values import SEED


class Measured(NamedTuple):
    """Persistent bytes, and the FLOPs of products by kind, such as "aten.mm"; None where the framework counts none."""

    persistent_bytes: int
    flops: Mapping[str, int] | None


def persistent_bytes(case: Case, kind: Kind) -> int:
    """Runs a case; the bytes of its parameters, buffers and, in training, of its optimiser's state, or of ONNX's weights."""
    if isinstance(case, OnnxCase):
        return _run_onnx(case)
    state: list[Tensor] = []
    if kind == "training":
        optimizer = case.optimizer([parameter for parameter in case.module.parameters() if parameter.requires_grad])
        _step(case)
        optimizer.step(*([lambda: _call(case, case.loss)] if isinstance(optimizer, torch.optim.LBFGS) else []))
        state = [leaf for leaf in pytree.tree_leaves([*optimizer.state.values()]) if isinstance(leaf, Tensor)]
    else:
        _infer(case)
    return sum(tensor.nbytes for tensor in (*case.module.parameters(), *case.module.buffers(), *state))


def flops(case: Case, kind: Kind) -> dict[str, int] | None:
    """Runs a case once more and counts, with the random numbers of a step with `sizes="run"`."""
    if isinstance(case, OnnxCase):
        return None
    torch.manual_seed(SEED)
    with counting() as counted:
        (_step if kind == "training" else _infer)(case)
    return {str(op): int(count) for op, count in counted.get_flop_counts().get("Global", {}).items()}


def _step(case: TorchCase) -> None:
    case.module.train()
    _call(case, case.loss).backward()


def _infer(case: TorchCase) -> None:
    case.module.eval()
    with torch.no_grad():
        _call(case, case.module)


def _call(case: TorchCase, call: Callable[..., Tensor]) -> Tensor:
    first = () if call is case.module else (case.module,)
    return call(*first, **case.inputs) if isinstance(case.inputs, dict) else call(*first, *case.inputs)


def _run_onnx(case: OnnxCase) -> int:
    """Runs a file; the bytes of its weights."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(case.path, options, providers=["CPUExecutionProvider"])
    session.run(None, dict(case.inputs))
    graph = onnx.load(case.path).graph
    nodes = [node.attribute[0].t for node in graph.node if node.op_type == "Constant" and node.attribute[0].HasField("t")]
    weights = [onnx.numpy_helper.to_array(weight) for weight in graph.initializer]
    constants = [value for value in map(onnx.numpy_helper.to_array, nodes) if value.size > MAX_FOLDED_ELEMENTS]
    return sum(value.nbytes for value in (*filter(_is_weight, weights), *constants))


def _is_weight(value: np.ndarray) -> bool:
    """Whether an initializer is a weight: a single value and a few whole numbers are part of the program."""
    return value.size != 1 and not (value.size <= MAX_FOLDED_ELEMENTS and value.dtype.kind in "iub")
