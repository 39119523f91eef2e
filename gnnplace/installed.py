"""Baselines and policies that other installed packages add by entry points of their `pyproject.toml`:

[project.entry-points."gnnplace.planners"]
longest-first = "my_package.planners:longest_first"

[project.entry-points."gnnplace.policies"]
linear = "my_package.linear:LinearConfig"
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from importlib.metadata import entry_points
from typing import Any


def added(group: str, names: Collection[str]) -> dict[str, Any]:
    """The objects of the entry points of a group, by name.

    An entry point that can't be imported, or whose name is in `names`, is left out with a warning.
    """
    plugins: dict[str, Any] = {}
    for entry in entry_points(group=group):
        place = f"entry point {entry.name!r} of {group} ({entry.value})"
        if entry.name in names or entry.name in plugins:
            warnings.warn(f"{place}: left out: the name is taken", stacklevel=2)
            continue
        try:
            plugins[entry.name] = entry.load()
        except Exception as error:  # another package's code may fail in any way
            warnings.warn(f"{place}: left out: {type(error).__name__}: {error}", stacklevel=2)
    return plugins
