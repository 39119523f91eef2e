"""Kernels: functions that Numba compiles, and whose machine code is kept on disk from one process to the next
(`kept.py`).

Numba would compile a kernel anew when its own file has changed, but machine code also contains the kernels that it
calls, and the values of constants. So here the code of a file is stamped with its text, with the constants that it
knows, with the stamps of the files from which it gets kernels, and with the text of this one.

Numba counts references to arrays in tuples by atomic instructions, which took two thirds of the time of a list
schedule. Kernels that allocate nothing need no counts (Numba compiles its own sorting likewise). One that does allocate
fails to compile with this option.

Kernels assign arrays to slices element by element: with a slice on the left, Numba compiles the text of an error, for
six seconds.

A `part` is called by kernels alone. What Python would need to call it, which unpacks tuples of some thirty arrays, is
not made: that took a quarter of the time of compiling. Python must not call one (tests/test_compiled.py looks for
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
    """Compiles a function of a file at its first call with given types. Other threads run while it runs."""
    assert function.__closure__ is None, "what a closure holds is in no stamp"
    njit: Any = numba.njit  # its stub knows not all options
    compiled = njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    compiled._cache = Kept(function, stamp)
    return compiled


allocates_nothing = partial(kernel, _nrt=False)
part = partial(kernel, no_cpython_wrapper=True)
part_allocates_nothing = partial(kernel, no_cpython_wrapper=True, _nrt=False)


@cache
def stamp(function: Kernel) -> str:
    """A digest of the file of a function with its constants, of the files
    from which it imports kernels, and so on, and of this one.
    """
    imported = {each.py_func for each in function.__globals__.values() if isinstance(each, Dispatcher)}
    files = {stamp(each) for each in imported if each.__module__ != function.__module__}
    sources = Path(function.__code__.co_filename).read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(sources + _constants(function) + "".join(sorted(files)).encode()).hexdigest()


def _constants(function: Kernel) -> bytes:
    """What code depends on that the module of a function knows by name,
    wherever it comes from: numbers, texts, fields of named tuples.
    """
    named = function.__globals__.items()
    return repr(
        sorted((name, plain) for name, value in named if (plain := _plain(value)) and not name.startswith("__"))
    ).encode()


def _plain(value: object) -> str | None:
    if isinstance(value, type) and hasattr(value, "_fields"):
        return named_tuple(value)
    if isinstance(value, tuple):
        return None if None in (each := [_plain(part) for part in value]) else repr(each)
    return repr(value) if isinstance(value, PLAIN) else None
