"""WORKLOAD as text: `FILE.py:FUNCTION`, `package.module:FUNCTION` or a name of the corpus, to the `Workload` that it means.

The function takes nothing and returns a `TorchStep` or a `TensorFlowStep`. It is called with seeded generators.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from gnnplace.corpus import manifest
from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.pinned import failure
from gnnplace.execution.tensorflow_spec import TensorFlowStep
from gnnplace.execution.workload import Workload

LOADER = f"{__name__}:load"  # for a host
BUILT = "python -m "
OURS = str(Path(__file__).parents[1])


def load(text: str, seed: int) -> Workload:
    """The workload. Raises ValueError where there is none such or it is not a step."""
    name, build = _builder(text)
    import torch  # here, so that a parser of arguments need not wait for it

    torch.manual_seed(seed)
    with _theirs(f"{text}: can't be built"):
        step = build()
        if isinstance(step, TensorFlowStep):
            from gnnplace.execution.tensorflow_workload import TensorFlowWorkload

            return TensorFlowWorkload(replace(step, name=name, seed=seed))
        from gnnplace.execution.torch_workload import TorchWorkload
        from gnnplace.frontends.torch_step import TorchStep

        if isinstance(step, TorchStep):
            return TorchWorkload(step, name)
    raise ValueError(f"{text}: returned a {type(step).__name__}; a workload's function returns a TorchStep or a TensorFlowStep")


def _builder(text: str) -> tuple[str, Callable[[], Any]]:
    where, separator, function = text.rpartition(":")
    if not separator:
        entry = manifest.entry(text)
        if not entry.builder.startswith(BUILT):
            raise ValueError(f"{text}: the corpus has its graph alone ({entry.builder}), and nothing that could run")
        module = _imported(entry.builder.removeprefix(BUILT).split()[0], manifest.folder().parent)
        return text, lambda: module.workload(text)
    module = _from_file(Path(where)) if where.endswith(".py") else _imported(where, Path.cwd())
    if not callable(getattr(module, function, None)):
        raise ValueError(f"{text}: {where} has no function {function!r}")
    return function, getattr(module, function)


def _imported(name: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    with _theirs(f"{name}: can't be imported"):
        return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    name = f"_gnnplace_workload_{path.stem}"  # not its own, which may be another module's
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path[:0] = [get_path("stdlib"), str(path.parent)]  # a workload in profile.py is not what others import as `profile`
    with _theirs(f"{path}: can't be imported"):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _theirs(what: str) -> Iterator[None]:
    """Raises ValueError, with the line, where a user's code fails. What stands for an outcome passes, and what we say or do wrong."""
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{what}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except ImportError as error:
        raise ValueError(f"{what}: {_place(error)}{error}") from error
    except Exception as error:
        ours = not _place(error) or (isinstance(error, ValueError) and _said_by_us(error))
        outcome = failure(error)
        if ours or (isinstance(outcome, MeasurementError) and outcome.outcome != "crash"):
            raise
        raise ValueError(f"{what}: {_place(error)}{type(error).__name__}: {error}") from error


def _place(error: Exception) -> str:
    """The last line of their own that led to an error, else of a library's; nothing where all are ours or the import system's."""
    frames = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)]
    theirs = [frame for frame in frames if not frame[0].startswith((OURS, "<frozen importlib")) and frame[0] != importlib.__file__]
    libraries = tuple(get_path(name) for name in ("stdlib", "purelib", "platlib"))
    own = [frame for frame in theirs if not frame[0].startswith(libraries)]
    return "{}, line {}: ".format(*(own or theirs)[-1]) if theirs else ""


def _said_by_us(error: Exception) -> bool:
    return extract_tb(error.__traceback__)[-1].filename.startswith(OURS)
