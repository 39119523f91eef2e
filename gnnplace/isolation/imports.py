"""What libraries may do while they are imported: they read no settings of the current folder, and print nothing.

What lies in the folder in which a user happens to be was not named: Numba's `.numba_config.yaml`, matplotlib's
`matplotlibrc`. Commands and their children leave it unread: libraries that look for settings there are imported in a
folder that holds none. A program that imports this package keeps what these libraries promise it.
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
NAMED = ("MATPLOTLIBRC", "MPLCONFIGDIR")  # by the user, who may mean the current folder
EMPTY = "/"  # of settings; root alone writes there
NO_HOME = "/nonexistent"  # as Debian calls it


def leave_settings_of_this_folder() -> None:
    """From now on libraries leave settings in the current folder unread.

    What else would lead there is gone: relative entries of Python's path, and a home that is relative, or unknown,
    which MLflow can't be imported without.
    """
    if not os.path.isabs(os.path.expanduser("~")):
        os.environ["HOME"] = NO_HOME
    sys.path[:] = filter(os.path.isabs, sys.path)
    for name in (NUMBA, MATPLOTLIB):
        _import_within(_elsewhere, name, once=False)


def import_silently(name: str) -> None:
    """Makes a later import of a module print nothing on stderr.

    TensorFlow announces its kernels there at every log level.
    """
    if name not in sys.modules:
        _import_within(_in_silence, name, once=True)


@contextmanager
def silenced(descriptor: int) -> Iterator[None]:
    """The standard stream of this number leads nowhere for a while, for all threads: no setting silences C's."""
    import ctypes  # here, for all commands import this module first

    libc, stream = ctypes.CDLL(None), {1: sys.stdout, 2: sys.stderr}[descriptor]
    stream.flush()
    libc.fflush(None)
    kept, sink = os.dup(descriptor), os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    try:
        yield
    finally:
        stream.flush()
        libc.fflush(None)
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(sink)


Context = Callable[[ModuleType], AbstractContextManager[None]]


class _Within(MetaPathFinder):
    """Finds a module as the finders after it do, and has it executed within a context; `once`: it is gone then."""

    def __init__(self, context: Context, name: str, once: bool) -> None:
        self.context, self.name, self.once = context, name, once

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in later)), None)
        if spec is None:
            self._end()
        elif spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = self._executing(loader.exec_module)
        return spec

    def _executing(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def executed(module: ModuleType) -> None:
            self._end()
            with self.context(module):
                execute(module)

        return executed

    def _end(self) -> None:
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
    """In a folder without settings, with what the user named as it was meant."""
    if module.__name__ == MATPLOTLIB:  # without a home it says, in two lines, where it keeps a list of fonts
        logging.getLogger(MATPLOTLIB).addFilter(lambda record: record.levelno > logging.WARNING)
        os.environ |= {name: os.path.abspath(os.environ[name]) for name in NAMED if os.environ.get(name)}
    here = os.open(os.curdir, os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(EMPTY)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
    if module.__name__ == NUMBA:  # it would look again whenever it compiles
        module._config_fname = os.devnull  # type: ignore[attr-defined]
