"""Silence for what libraries print beneath Python, which no setting of theirs turns off."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


@contextmanager
def silenced(descriptor: int) -> Iterator[None]:
    """The standard stream of this number leads nowhere for a while, for all threads."""
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


def import_silently(name: str) -> None:
    """Whoever imports a module later: it says nothing on stderr then. TensorFlow announces its kernels there at every level of logs."""
    if name not in sys.modules and not any(isinstance(finder, _Silent) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Silent(name))


class _Silent(MetaPathFinder):
    """Finds the module as others do, once, and has it executed in silence."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _in_silence(loader.exec_module)
        return spec


def _in_silence(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def executed(module: ModuleType) -> None:
        with silenced(2):
            execute(module)

    return executed
