"""Code of a user by reference: `FILE.py:FUNCTION` or `package.module:FUNCTION`, and what went wrong in it, with its line.

Whoever calls it does so in a process of its own, never in the one that the user asked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import failure

OURS = str(Path(__file__).parents[1])
AUTOGRAPH = "__autograph_generated_file"  # TensorFlow's rewriting of a function, whose own line is in the error's text


def is_code(text: str) -> bool:
    """Whether a text names a function, as opposed to a file or a graph of the corpus."""
    where, _, function = text.rpartition(":")
    return bool(where) and function.isidentifier()


def function(text: str) -> tuple[str, Callable[[], Any]]:
    """The name of the function that a text names, and the function. Raises ValueError where there is none such."""
    where, _, name = text.rpartition(":")
    module = _from_file(Path(where)) if where.endswith(".py") else imported(where, Path.cwd())
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{text}: {where} has no function {name!r}")
    return name, getattr(module, name)


def imported(name: str, folder: Path) -> ModuleType:
    """The module of a name, which may lie in `folder`. Raises ValueError where it can't be imported."""
    _look_in(folder)
    with theirs(f"{name}: can't be imported"):
        return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    name = f"_gnnplace_workload_{path.stem}"  # not its own, which may be another module's
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _look_in(path.parent, Path.cwd())
    with theirs(f"{path}: can't be imported"):
        spec.loader.exec_module(module)
    return module


def _look_in(*folders: Path) -> None:
    """Has modules looked for in these folders, but in Python's own before: a workload in profile.py is not what others import as that."""
    sys.path[:0] = [get_path("stdlib"), *map(str, folders)]


@contextmanager
def theirs(what: str) -> Iterator[None]:
    """Raises ValueError, with the line, where a user's code fails or is refused. What stands for an outcome passes, and faults of ours."""
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{what}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except ImportError as error:
        raise ValueError(f"{what}: {_place(error)}{error}") from error
    except SystemExit as error:
        raise ValueError(f"{what}: {_place(error)}SystemExit: {error}") from error
    except Exception as error:
        if isinstance(error, ValueError) and _said_by_us(error):
            raise ValueError(f"{what}: {_place(error, libraries=False)}{error}") from error
        outcome = failure(error)
        if not _place(error) or isinstance(error, MeasurementError):
            raise
        if isinstance(outcome, MeasurementError) and outcome.outcome != "crash":
            raise MeasurementError(outcome.outcome, f"{_place(error)}{outcome.reason}") from error
        raise ValueError(f"{what}: {_place(error)}{type(error).__name__}: {error}") from error


def _place(error: BaseException, libraries: bool = True) -> str:
    """The last line of their own that led to an error, else of a library's; nothing where all are ours, the import's or no file's."""
    frames = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)]
    theirs = [frame for frame in frames if not frame[0].startswith((OURS, "<")) and frame[0] != importlib.__file__]
    folders = tuple(get_path(name) for name in ("stdlib", "purelib", "platlib"))
    own = [frame for frame in theirs if not frame[0].startswith(folders) and AUTOGRAPH not in frame[0]]
    found = own or (theirs if libraries else [])
    return "{}, line {}: ".format(*found[-1]) if found else ""


def _said_by_us(error: Exception) -> bool:
    return extract_tb(error.__traceback__)[-1].filename.startswith(OURS)
