"""Has libraries that look for settings in the current folder as they are imported look in one that holds none.

What lies in the folder in which a user happens to be was not named: Numba's `.numba_config.yaml`, matplotlib's `matplotlibrc`. Commands and
their children leave it unread. A program that imports this package keeps what these libraries promise it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NUMBA, MATPLOTLIB = "numba.core.config", "matplotlib"
NAMED = ("MATPLOTLIBRC", "MPLCONFIGDIR")  # by the user, who may mean the current folder
EMPTY = "/"  # of settings; root alone writes there
NO_HOME = "/nonexistent"  # as Debian calls it


def leave_those_of_this_folder() -> None:
    """From now on the libraries are imported so. What else would lead to the current folder is gone: relative entries of Python's path, and
    a home that is relative, or unknown, which MLflow can't be imported without.
    """
    if not os.path.isabs(os.path.expanduser("~")):
        os.environ["HOME"] = NO_HOME
    sys.path[:] = filter(os.path.isabs, sys.path)
    if not any(isinstance(finder, _Elsewhere) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Elsewhere())


class _Elsewhere(MetaPathFinder):
    """Finds the libraries as Python does, and has them executed elsewhere."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name in (NUMBA, MATPLOTLIB) else None
        if found is not None and found.loader is not None:
            loader: Any = found.loader
            loader.exec_module = _executing(loader.exec_module)
        return found


def _executing(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def executed(module: ModuleType) -> None:
        if module.__name__ == MATPLOTLIB:  # without a home it says, in two lines, where it keeps a list of fonts
            logging.getLogger(MATPLOTLIB).addFilter(lambda record: record.levelno > logging.WARNING)
            os.environ |= {name: os.path.abspath(os.environ[name]) for name in NAMED if os.environ.get(name)}
        with _elsewhere():
            execute(module)
        if module.__name__ == NUMBA:  # it would look again whenever it compiles
            module._config_fname = os.devnull  # type: ignore[attr-defined]

    return executed


@contextmanager
def _elsewhere() -> Iterator[None]:
    here = os.open(os.curdir, os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(EMPTY)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
