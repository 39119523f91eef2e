"""Loads a user's function by reference (`FILE.py:FUNCTION` or `package.module:FUNCTION`) and reports its errors with
their line.

Call it only in a child process, never in the process of the command.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from gnnplace.isolation.imports import import_silently
from gnnplace.isolation.outcome import MeasurementError

OURS = str(Path(__file__).parents[1])
AUTOGRAPH = "__autograph_generated_file"  # TensorFlow's rewriting of a function, whose own line is in the error's text


def is_code(text: str) -> bool:
    """Whether a text refers to a function, not to a file or a graph of the corpus."""
    where, _, function = text.rpartition(":")
    return bool(where) and function.isidentifier()


def function(text: str) -> tuple[str, Callable[[], Any]]:
    """The name of what the function makes that a text refers to, and the function. Raises ValueError if it does not
    exist.

    The name is that of file (or module) and function: `nets/net.py:step` makes `net.step`.
    """
    where, _, name = text.rpartition(":")
    import_silently("tensorflow")
    module = _from_file(Path(where)) if where.endswith(".py") else imported(where, Path.cwd())
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{text}: {where} has no function {name!r}")
    stem = Path(where).stem if where.endswith(".py") else where.rpartition(".")[2]
    return f"{stem}.{name}", getattr(module, name)


def imported(name: str, folder: Path) -> ModuleType:
    """The module called `name`, searched for in `folder`, too. Raises ValueError if it can't be imported."""
    _look_in(folder)
    import_silently("tensorflow")
    with theirs(f"{name}: can't be imported"):
        return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    name = f"_gnnplace_workload_{path.stem}"  # its own name may be that of another module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _look_in(*_around(path))
    with theirs(f"{path}: can't be imported"):
        spec.loader.exec_module(module)
    return module


def _around(path: Path) -> list[Path]:
    """Where a file finds modules: beside it, and in the current folder where that is its own, too.

    Whose file it is not adds nothing.
    """
    file, here = Path(os.path.abspath(path)), Path.cwd()
    return [file.parent, here] if file.is_relative_to(here) else [file.parent]


def _look_in(*folders: Path) -> None:
    """Adds folders to the import path, after the standard library: a
    workload in profile.py must not hide the module `profile`.
    """
    sys.path[:0] = [get_path("stdlib"), *map(str, folders)]


@contextmanager
def theirs(what: str) -> Iterator[None]:
    """Turns errors of the user's code into ValueErrors with their line. MeasurementErrors and our own errors pass."""
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
        from gnnplace.isolation.worker import failure  # to tell a text of code from others, nobody needs processes

        outcome = failure(error)
        if not _place(error) or isinstance(error, MeasurementError):
            raise
        if isinstance(outcome, MeasurementError) and outcome.outcome != "crash":
            raise MeasurementError(outcome.outcome, f"{_place(error)}{outcome.reason}") from error
        raise ValueError(f"{what}: {_place(error)}{type(error).__name__}: {error}") from error


def _place(error: BaseException, libraries: bool = True) -> str:
    """`FILE, line N: ` of the last line of the user's code that led to an
    error, or else of a library's; empty if there is neither.
    """
    frames = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)]
    theirs = [frame for frame in frames if not frame[0].startswith((OURS, "<")) and frame[0] != importlib.__file__]
    folders = tuple(get_path(name) for name in ("stdlib", "purelib", "platlib"))
    own = [frame for frame in theirs if not frame[0].startswith(folders) and AUTOGRAPH not in frame[0]]
    found = own or (theirs if libraries else [])
    return "{}, line {}: ".format(*found[-1]) if found else ""


def _said_by_us(error: Exception) -> bool:
    return extract_tb(error.__traceback__)[-1].filename.startswith(OURS)
