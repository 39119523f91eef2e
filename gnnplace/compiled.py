"""Kernels: functions that Numba compiles, and whose machine code it keeps on disk from one process to the next.

The code lies in the user's cache folder (`folder`), or in the package, where an installation has put it (`ahead_of_time.py`). Numba
compiles a kernel anew when its own file has changed, but machine code also contains the kernels that it calls. So here the code of a file
is stamped with its text, with the stamps of the files from which it gets kernels, and with the text of this one.

Where Numba finds machine code on disk, it would make its compiler ready nevertheless, for half a second, and import SciPy for it. `Kept`
leaves that to the first kernel that has to be compiled.

Numba counts references to arrays in tuples by atomic instructions, which took two thirds of the time of a list schedule. Kernels that
allocate nothing need no counts (Numba compiles its own sorting likewise). One that does allocate fails to compile with this option.

Kernels assign arrays to slices element by element: with a slice on the left, Numba compiles the text of an error, for six seconds.

A `part` is called by kernels alone. What Python would need to call it, which unpacks tuples of some thirty arrays, is not made: that took a
quarter of the time of compiling. Python must not call one (tests/test_compiled.py looks for calls).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys

Kernel = Callable[..., Any]
PACKAGE = Path(__file__).resolve().parent
INSTALLED = PACKAGE / "machine_code"


class Kept(FunctionCache):
    """The machine code of a kernel on disk, stamped by `stamp`."""

    def __init__(self, function: Kernel) -> None:
        super().__init__(function)
        home, base = Path(function.__code__.co_filename).resolve().parent, self._impl.filename_base
        self._cache_file._source_stamp = stamp(function)
        self._installed = INSTALLED / home.relative_to(PACKAGE) if home.is_relative_to(PACKAGE) else INSTALLED  # of others there is none
        self._files = (self._cache_file, IndexDataCacheFile(str(self._installed), base, stamp(function)))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, None where there is none: then Numba compiles it, and makes its compiler ready (`refresh`) itself."""
        rtsys.initialize(target_context)  # what allocates, which machine code calls
        key = self._index_key(sig, target_context.codegen())
        code = next((code for file in self._files if (code := file.load(key)) is not None), None)
        return None if code is None else self._impl.rebuild(target_context, code)

    def install(self) -> None:
        """Copies what is kept of the kernel into the package."""
        self._installed.mkdir(parents=True, exist_ok=True)
        for path in Path(self.cache_path).glob(f"{self._impl.filename_base}.*"):
            shutil.copy(path, self._installed)


def folder() -> Path:
    """Where machine code is kept: `gnnplace` in the user's cache folder, `XDG_CACHE_HOME` (XDG Base Directory)."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "gnnplace"


def kernel(function: Kernel, **options: Any) -> Kernel:
    """Compiles a function of a file at its first call with given types. Other threads run while it runs."""
    made: Any = numba.njit  # its stub knows not all options
    compiled = made(nogil=True, no_cfunc_wrapper=True, **options)(function)
    with _kept_in(str(folder())):
        compiled._cache = Kept(function)
    return compiled


allocates_nothing = partial(kernel, _nrt=False)
part = partial(kernel, no_cpython_wrapper=True)
part_allocates_nothing = partial(kernel, no_cpython_wrapper=True, _nrt=False)


@cache
def stamp(function: Kernel) -> str:
    """A digest of the file of a function, of those from which it imports kernels, and so on, and of this one."""
    imported = {each.py_func for each in function.__globals__.values() if isinstance(each, Dispatcher)}
    files = {stamp(each) for each in imported if each.__module__ != function.__module__}
    own = Path(function.__code__.co_filename).read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(own + "".join(sorted(files)).encode()).hexdigest()


@contextmanager
def _kept_in(cache: str) -> Iterator[None]:
    """Within, Numba keeps machine code there, unless the user names a folder for all of Numba (`NUMBA_CACHE_DIR`)."""
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = before or cache
    try:
        yield
    finally:
        config.CACHE_DIR = before
