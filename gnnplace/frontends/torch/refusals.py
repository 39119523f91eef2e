"""One-line explanations of failed traces: the cause, the lines of the library and of the user, and a remedy.

Torch's own logs are silenced.
"""

from __future__ import annotations

import io
import linecache
import logging
import re
import sysconfig
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.nn.parameter import is_lazy

NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
NUMPY = ".numpy() is not supported"
UNALLOCATED = "its data is not allocated yet"  # the message of a kernel that got fake tensors
Line = tuple[FrameType, int]  # a frame and its line
_OURS = (Path(__file__).parent, Path(torch.__file__).parent)
_LAYERS = (Path(nn.__file__).parent,)
_STANDARD = (Path(sysconfig.get_path("stdlib")),)
_PACKAGES = {"site-packages", "dist-packages"}
EXAMPLE = 'sizes="example" takes them from the example inputs'
ADVICE = {  # by a part of the op's name; the first that fits
    "ctc_loss": f"give the lengths of inputs and targets as tuples of ints, or {EXAMPLE}",
    "pack_padded": f"give the lengths as Python numbers, or {EXAMPLE}",
    "local_scalar_dense": f"decide by Python values or with torch.where, or {EXAMPLE}",
    "is_nonzero": f"decide by Python values or with torch.where, or {EXAMPLE}",
    "numpy": "compute with tensors in place of NumPy's arrays",
    "equal": f"compare Python values, or {EXAMPLE}",
    "": f"keep sizes fixed (torch.where for a mask, output_size=... for repeat_interleave), or {EXAMPLE}",
}
OF_EXAMPLE = (
    "these depend on parameters or random numbers, or an input has no values, so example inputs don't tell them; "
    'capture the part of the module that does not need them, or plan with sizes="run", which takes them from one '
    "run of the module"
)
OF_RUN = (
    "one run of the module does not tell them, since an input or a parameter has no values, or Python itself reads "
    "them; capture the part of the module that does not need them"
)
EXPERTS = (
    "keep shapes fixed (a router of experts: top k, and a fixed capacity for each of them; in transformers "
    "config._experts_implementation = 'batched_mm'), or plan with sizes=\"run\", which takes them from one run of the "
    "module"
)
_EXPERT = re.compile(r"(?i:mixture|expert|router|gating)|SparseMoe|\bMo[Ee]\b|MoE\b|Mo[Ee](Block|Layer|M[Ll][Pp])")


def explained(error: Exception, sizes: str | None = None) -> str:
    """The cause of a failed capture in one line: the op or error, the lines of code, and a remedy.

    `sizes` is the step's.
    """
    if isinstance(error, ValueError) and str(error).startswith("module: "):
        return str(error)  # it explains itself
    lines = _of_module(list(traceback.walk_tb(error.__traceback__)))
    if isinstance(error, NEEDS_VALUES) or UNALLOCATED in str(error) or NUMPY in str(error):
        op = "numpy()" if NUMPY in str(error) else str(getattr(error, "func", "a kernel"))
        what = f"{op} needs the values of its tensors, but a step is captured without values"
        advice = _advice(op, [frame for frame, _ in lines], sizes)
    else:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        advice = "check that the module runs on these inputs, or capture the part of it that does"
    return f"module: {what}{_place(lines)}; {advice}"


def place_of_caller() -> str:
    """The lines of the code that runs now, of the library and of the user, within the module that is captured."""
    lines = [*traceback.walk_stack(None)][::-1]
    first = next(number for number, (frame, _) in enumerate(lines) if _is_within(frame.f_code.co_filename, _OURS[:1]))
    return _place(_of_module(lines[first:]))


def _of_module(lines: Sequence[Line]) -> list[Line]:
    """The frames of the module's code, with their lines: those outside gnnplace and torch, before a mode of ours.

    Of a module of PyTorch's own, the frames in `torch.nn`.
    """
    modes = (str(_OURS[0] / name) for name in ("known_values.py", "recurrences.py"))
    files = [frame.f_code.co_filename for frame, _ in lines]
    end = min((files.index(mode) for mode in modes if mode in files), default=len(files))
    before = list(zip(lines[:end], files, strict=False))
    theirs = [line for line, file in before if not _is_ours(file)]
    return theirs or [line for line, file in before if _is_within(file, _LAYERS)]


def _advice(op: str, frames: Sequence[FrameType], sizes: str | None) -> str:
    """A remedy for an op that needs values within these frames."""
    if "local_scalar_dense" in op and (knobs := _layer_drops(frames)):
        return f"layers are skipped at random: build the module with {' and '.join(f'{knob}=0' for knob in knobs)}"
    if sizes == "run" and "numpy" not in op:
        return OF_RUN
    if any(_EXPERT.search(frame.f_code.co_qualname) for frame in frames):
        return EXPERTS
    if sizes == "example" and "numpy" not in op:
        return OF_EXAMPLE
    return next(advice for part, advice in ADVICE.items() if part in op)


def _layer_drops(frames: Sequence[FrameType]) -> list[str]:
    """The knobs of LayerDrop that the innermost frame reads, as the module's or its configuration's attributes."""
    if not frames or not any("layerdrop" in name for name in frames[-1].f_code.co_names):
        return []
    module = frames[-1].f_locals.get("self")
    config = getattr(module, "config", None)
    holders = (("config.", config), ("", module)) if config is not None else (("", module),)
    for prefix, holder in holders:
        if knobs := [f"{prefix}{name}" for name, value in vars(holder).items() if "layerdrop" in name and value]:
            return knobs
    return []


def _place(lines: Sequence[Line]) -> str:
    """The innermost line and, if that is a library's, the line of the user that called it."""
    users = [line for line in lines if not _is_library(line[0].f_code.co_filename)]
    words = [f"at {_words(*lines[-1])}"] if lines else []
    words += [f"called at {_words(*users[-1])}"] if users and users[-1] != lines[-1] else []
    return f" {', '.join(words)}" if words else ""


def _words(frame: FrameType, number: int) -> str:
    file = frame.f_code.co_filename
    return f"{file}:{number} ({linecache.getline(file, number).strip()})"


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
    return file.startswith("<") or _is_within(file, _OURS)


def _is_library(file: str) -> bool:
    return bool(_PACKAGES & set(Path(file).parts)) or _is_within(file, _STANDARD)


def _is_within(file: str, folders: Sequence[Path]) -> bool:
    return any(folder in Path(file).parents for folder in folders)
