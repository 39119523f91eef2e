"""The shortest names for layers with shares of their own."""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Mapping

from gnnplace.transformations.families import FamilyShares


def family_names(shares: Mapping[str, tuple[int, ...]], step: tuple[int, ...]) -> FamilyShares:
    """The names of the layers whose shares are not those of the step, the shares of each layer given.

    A name stands for a layer and all in it. So a layer around others with other shares can't be named: it keeps those
    of the step.

        >>> family_names({"h.0": (0, 4), "h.0.norm": (0, 4), "h.1": (0, 4), "h.1.norm": (1, 3)}, (2, 2))
        (('h.0', (0, 4)), ('h.1.norm', (1, 3)))
    """
    inside = defaultdict[str, set[tuple[int, ...]]](set)
    for name, each in shares.items():
        for around in paths(name):
            inside[around].add(each)
    named = dict[str, tuple[int, ...]]()
    for name, each in shares.items():
        if (top := next((around for around in paths(name) if inside[around] == {each}), None)) is not None:
            named[top] = each
    return tuple((glob.escape(name), each) for name, each in sorted(named.items()) if each != step)


def paths(layer: str) -> list[str]:
    """The paths of a layer and of those around it, the shortest first.

    >>> paths("a.b/c")
    ['a', 'a.b', 'a.b/c']
    """
    return [layer[: end.start()] for end in re.finditer(r"[./]|$", layer)]
