"""How the inner functions of list schedulers are compiled: without counting references.

Numba counts every use of an array in a tuple, up and down, by atomic instructions: that was two thirds of a schedule's time. Functions
that allocate nothing need none of it (numba's own sorting is compiled likewise); one that allocates does not compile.
"""

from __future__ import annotations

from typing import Any

import numba

allocates_nothing: Any = numba.njit(cache=True, _nrt=False)  # type: ignore[call-overload]  # its stubs leave it out
