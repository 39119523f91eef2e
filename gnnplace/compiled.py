"""Kernels: functions that Numba compiles, with their machine code kept on disk between processes (`kept.py`).

Numba's own cache compiles a kernel anew when its file has changed. But machine code also contains the kernels that it
calls and the values of constants. So the stamp of a kernel here covers the text of its file, the constants that the
file uses, the stamps of the files from which it imports kernels, and the text of this file.

Numba counts references to arrays in tuples with atomic instructions, which took two thirds of the time of a list
schedule. Kernels that allocate nothing (`allocates_nothing`) need no counts; Numba compiles its own sorting in the same
way. A kernel that does allocate fails to compile with this option.

Kernels assign arrays to slices element by element. With a slice on the left Numba would compile the text of an error,
which takes six seconds.

Only kernels call a `part`. Numba leaves out the wrapper that Python would need to call it, which unpacks tuples of some
thirty arrays and took a quarter of the compile time. Python must not call a `part` (tests/test_compiled.py looks for
calls).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from gnnplace.kept import Kept, named_tuple

Kernel = Callable[..., Any]
PLAIN = (bool, int, float, str, bytes, np.generic)


def kernel(function: Kernel, **options: Any) -> Kernel:
    """Compiles a function at its first call with arguments of given types. Other threads run while it runs (no GIL)."""
    assert function.__closure__ is None, "no stamp covers the values in a closure"
    njit: Any = numba.njit  # its type stub lacks some options
    compiled = njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    compiled._cache = Kept(function, stamp)
    return compiled


allocates_nothing = partial(kernel, _nrt=False)
part = partial(kernel, no_cpython_wrapper=True)
part_allocates_nothing = partial(kernel, no_cpython_wrapper=True, _nrt=False)


@cache
def stamp(function: Kernel) -> str:
    """A digest of a function's file and its constants, of the stamps of the kernels it imports, and of this file."""
    kernels = {value.py_func for value in function.__globals__.values() if isinstance(value, Dispatcher)}
    files = {stamp(other) for other in kernels if other.__module__ != function.__module__}
    sources = Path(function.__code__.co_filename).read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(sources + _constants(function) + "".join(sorted(files)).encode()).hexdigest()


def _constants(function: Kernel) -> bytes:
    """The constants among the globals of a function's module, imported ones too: numbers, texts, named tuples."""
    names = function.__globals__.items()
    return repr(
        sorted((name, plain) for name, value in names if (plain := _plain(value)) and not name.startswith("__"))
    ).encode()


def _plain(value: object) -> str | None:
    """The text of a constant that machine code may contain; None for any other value."""
    if isinstance(value, type) and hasattr(value, "_fields"):
        return named_tuple(value)
    if isinstance(value, tuple):
        return None if None in (items := [_plain(item) for item in value]) else repr(items)
    return repr(value) if isinstance(value, PLAIN) else None
