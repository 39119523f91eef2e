"""Kernels: functions that Numba compiles, and whose machine code it keeps on disk from one process to the next.

Numba compiles a kernel anew when its own file has changed, but machine code also contains the kernels that it calls. So here the code of a
file is stamped with its text and with the stamps of the files from which it imports kernels.

Numba counts references to arrays in tuples by atomic instructions, which took two thirds of the time of a list schedule. Kernels that
allocate nothing need no counts (Numba compiles its own sorting likewise). One that does allocate fails to compile with this option.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher

Kernel = Callable[..., Any]


def kernel(function: Kernel, **options: Any) -> Kernel:
    """Compiles a function of a file at its first call with given types. Other threads run while it runs."""
    compiled: Any = numba.njit(cache=True, nogil=True, **options)(function)
    compiled._cache._cache_file._source_stamp = stamp(function)
    return compiled


allocates_nothing = partial(kernel, _nrt=False)


@cache
def stamp(function: Kernel) -> str:
    """A digest of the file of a function and of those from which it imports kernels, and so on."""
    imported = {each.py_func for each in function.__globals__.values() if isinstance(each, Dispatcher)}
    files = {stamp(each) for each in imported if each.__module__ != function.__module__}
    own = Path(function.__code__.co_filename).read_bytes()
    return hashlib.sha256(own + "".join(sorted(files)).encode()).hexdigest()
