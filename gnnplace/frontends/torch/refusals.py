"""One-line explanations of failed traces: the cause, the line of the module's code, and a remedy.

Torch's own logs are silenced.
"""

from __future__ import annotations

import io
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.nn.parameter import is_lazy

NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
UNALLOCATED = "its data is not allocated yet"  # the message of a kernel that got fake tensors
_OURS = (Path(__file__).parent, Path(torch.__file__).parent)


def explained(error: Exception) -> str:
    """The cause of a failed capture in one line: the op or error, the line of the module's code, and a remedy."""
    if isinstance(error, NEEDS_VALUES) or UNALLOCATED in str(error):
        what = (
            f"{getattr(error, 'func', 'a kernel')} needs the values of its tensors, but a step is captured "
            "without values"
        )
        advice = (
            "decide by plain Python values or with torch.where, or capture the part of the module that does "
            "not need them"
        )
        if isinstance(error, DynamicOutputShapeException):
            advice = (
                "keep shapes fixed (a router of experts: top k, and a fixed capacity for each of them), or " + advice
            )
    else:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        advice = "check that the module runs on these inputs, or capture the part of it that does"
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    where = f" at {theirs[-1].filename}:{theirs[-1].lineno} ({(theirs[-1].line or '').strip()})" if theirs else ""
    return f"module: {what}{where}; {advice}"


def check_built(module: nn.Module) -> None:
    """Raises ValueError if a parameter or buffer has no shape yet, or is sparse."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise ValueError(
                f"module: {name}: has no shape before the first call of its layer; call the module once on example "
                "inputs"
            )
        check_strided(f"module: {name}", tensor)


def check_strided(what: str, tensor: Tensor) -> None:
    """Raises ValueError for a tensor that is sparse or has another layout that is not strided."""
    if tensor.layout is not torch.strided:
        raise ValueError(
            f"{what}: has the layout {str(tensor.layout).removeprefix('torch.')}; a step has strided (dense) tensors "
            "alone"
        )


@contextmanager
def silenced() -> Iterator[None]:
    """Silences logs, warnings and stderr within the context: torch prints tracebacks and graphs if a capture fails."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _is_ours(file: str) -> bool:
    """Whether a traceback line belongs to gnnplace or torch, not to the module."""
    return file.startswith("<") or any(folder in Path(file).parents for folder in _OURS)
