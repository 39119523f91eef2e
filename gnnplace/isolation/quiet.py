"""Silence for what libraries print beneath Python, which no setting of theirs turns off."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


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
    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads as another does, in silence."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with silenced(2):
            self._loader.exec_module(module)
