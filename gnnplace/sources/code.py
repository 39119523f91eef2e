"""Loads a user's function by reference (`FILE.py:FUNCTION` or `package.module:FUNCTION`).

Errors of the user's code are reported with their line. Call it only in a child process, never in that of the command.
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
AUTOGRAPH = "__autograph_generated_file"  # a function as rewritten by TensorFlow; the error's text has the user's line


def is_code(text: str) -> bool:
    """Whether a text refers to a function, not to a file or a graph of the corpus."""
    module, _, function = text.rpartition(":")
    return bool(module) and function.isidentifier()


def function(text: str) -> tuple[str, Callable[[], Any]]:
    """The function that a text refers to, and a name for its result: `nets/net.py:step` is `net.step`.

    Raises ValueError if it does not exist.
    """
    source, _, name = text.rpartition(":")
    import_silently("tensorflow")
    module = _from_file(Path(source)) if source.endswith(".py") else imported(source, Path.cwd())
    if not callable(getattr(module, name, None)):
        raise ValueError(f"{text}: {source} has no function {name!r}")
    stem = Path(source).stem if source.endswith(".py") else source.rpartition(".")[2]
    return f"{stem}.{name}", getattr(module, name)


def imported(name: str, folder: Path) -> ModuleType:
    """The module called `name`, which may lie in `folder`. Raises ValueError if it can't be imported."""
    _prepend_to_path(folder)
    import_silently("tensorflow")
    with user_code(f"{name}: can't be imported"):
        return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    name = f"_gnnplace_workload_{path.stem}"  # the stem alone may be the name of another module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _prepend_to_path(*_import_folders(path))
    with user_code(f"{path}: can't be imported"):
        spec.loader.exec_module(module)
    return module


def _import_folders(path: Path) -> list[Path]:
    """The folders from which a file may import: its own, and the current folder if the file lies in it."""
    file, current = Path(os.path.abspath(path)), Path.cwd()
    return [file.parent, current] if file.is_relative_to(current) else [file.parent]


def _prepend_to_path(*folders: Path) -> None:
    """Puts folders at the front of the import path, after the standard library.

    A user's profile.py must not hide the module `profile`.
    """
    sys.path[:0] = [get_path("stdlib"), *map(str, folders)]


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """A context that turns errors of the user's code into ValueErrors with their line; `what` begins their text.

    MeasurementErrors and our own errors pass.
    """
    try:
        yield
    except SyntaxError as error:
        raise ValueError(f"{what}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except ImportError as error:
        raise ValueError(f"{what}: {_place(error)}{error}") from error
    except SystemExit as error:
        raise ValueError(f"{what}: {_place(error)}SystemExit: {error}") from error
    except Exception as error:  # the user's code may raise anything
        if isinstance(error, ValueError) and _is_ours(error):
            raise ValueError(f"{what}: {_place(error, libraries=False)}{error}") from error
        from gnnplace.isolation.worker import failure  # imported late: `is_code` alone needs no processes

        outcome = failure(error)
        if not _place(error) or isinstance(error, MeasurementError):
            raise
        if isinstance(outcome, MeasurementError) and outcome.outcome != "crash":
            raise MeasurementError(outcome.outcome, f"{_place(error)}{outcome.reason}") from error
        raise ValueError(f"{what}: {_place(error)}{type(error).__name__}: {error}") from error


def _place(error: BaseException, libraries: bool = True) -> str:
    """`FILE, line N: ` of the last line of the user's code that led to an error, or else of a library; may be empty."""
    frames = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)]
    foreign = [frame for frame in frames if not frame[0].startswith((OURS, "<")) and frame[0] != importlib.__file__]
    folders = tuple(get_path(name) for name in ("stdlib", "purelib", "platlib"))
    users = [frame for frame in foreign if not frame[0].startswith(folders) and AUTOGRAPH not in frame[0]]
    frames = users or (foreign if libraries else [])
    return "{}, line {}: ".format(*frames[-1]) if frames else ""


def _is_ours(error: Exception) -> bool:
    """Whether our code has raised an error."""
    return extract_tb(error.__traceback__)[-1].filename.startswith(OURS)
