"""Restrictions on libraries during their import: they read no settings from the current folder and print nothing.

Numba looks for `.numba_config.yaml` and matplotlib for `matplotlibrc` in the current folder, which the user has not
named. So commands and their child processes import these libraries in a folder without settings. A program that merely
imports this package is not affected.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NUMBA, MATPLOTLIB = "numba.core.config", "matplotlib"
USER_PATHS = ("MATPLOTLIBRC", "MPLCONFIGDIR")  # the user sets them, perhaps relative to the current folder
NO_SETTINGS = "/"  # a folder to which only root can write
NO_HOME = "/nonexistent"  # Debian's name for it


def leave_settings_of_this_folder() -> None:
    """From now on libraries do not read settings from the current folder.

    Relative entries of Python's import path go as well. A relative or unknown home folder is replaced, since MLflow
    can't be imported without one.
    """
    if not os.path.isabs(os.path.expanduser("~")):
        os.environ["HOME"] = NO_HOME
    sys.path[:] = filter(os.path.isabs, sys.path)
    for name in (NUMBA, MATPLOTLIB):
        _import_within(_elsewhere, name, once=False)


def import_silently(name: str) -> None:
    """Makes a later import of a module print nothing on stderr.

    TensorFlow reports its kernels there at every log level.
    """
    if name not in sys.modules:
        _import_within(_in_silence, name, once=True)


@contextmanager
def silenced(descriptor: int) -> Iterator[None]:
    """Discards within the context what any thread, C code included, writes to a standard stream (1 or 2)."""
    import ctypes  # imported late, since every command imports this module first

    libc, stream = ctypes.CDLL(None), {1: sys.stdout, 2: sys.stderr}[descriptor]
    stream.flush()
    libc.fflush(None)
    saved, sink = os.dup(descriptor), os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    try:
        yield
    finally:
        stream.flush()
        libc.fflush(None)
        os.dup2(saved, descriptor)
        os.close(saved)
        os.close(sink)


Context = Callable[[ModuleType], AbstractContextManager[None]]


class _Within(MetaPathFinder):
    """A finder that runs the import of one module within a context; with `once` it removes itself afterwards."""

    def __init__(self, context: Context, name: str, once: bool) -> None:
        self.context, self.name, self.once = context, name, once

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        later_finders = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in later_finders)), None)
        if spec is None:
            self._remove()
        elif spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = self._within(loader.exec_module)
        return spec

    def _within(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def execute_within(module: ModuleType) -> None:
            self._remove()
            with self.context(module):
                execute(module)

        return execute_within

    def _remove(self) -> None:
        with suppress(ValueError):
            if self.once:
                sys.meta_path.remove(self)


def _import_within(context: Context, name: str, once: bool) -> None:
    """Makes a later import of a module run within a context."""
    if not any(isinstance(finder, _Within) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Within(context, name, once))


def _in_silence(_: ModuleType) -> AbstractContextManager[None]:
    return silenced(2)


@contextmanager
def _elsewhere(module: ModuleType) -> Iterator[None]:
    """A context in a folder without settings, in which the user's own paths keep their meaning."""
    if module.__name__ == MATPLOTLIB:  # without a home folder it warns, in two lines, about its list of fonts
        logging.getLogger(MATPLOTLIB).addFilter(lambda record: record.levelno > logging.WARNING)
        os.environ |= {name: os.path.abspath(os.environ[name]) for name in USER_PATHS if os.environ.get(name)}
    current_folder = os.open(os.curdir, os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(NO_SETTINGS)
        yield
    finally:
        os.fchdir(current_folder)
        os.close(current_folder)
    if module.__name__ == NUMBA:  # it would look for settings again at every compilation
        module._config_fname = os.devnull  # type: ignore[attr-defined]
