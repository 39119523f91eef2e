"""The compiler option of the inner functions of list schedulers: no reference counting.

Numba counts references to arrays in tuples by atomic instructions, which took two thirds of the time of a schedule. Functions that allocate
nothing need no counts (numba compiles its own sorting likewise). A function that does allocate fails to compile with this option.
"""

from __future__ import annotations

from typing import Any

import numba

allocates_nothing: Any = numba.njit(cache=True, _nrt=False)  # type: ignore[call-overload]  # its stubs leave it out
