"""Python in a process of its own: every child that imports our code is started with this command line and this environment.

The child imports from where this process does, and not from the current folder: a file there named like a module of a library is the
user's, and never run (CWE-427).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CHILD = str(Path(__file__).resolve().with_name("child.py"))


def command(*arguments: str) -> list[str]:
    """The command line of a Python that is given `arguments`: `-m MODULE ...`, a module of ours, or `-c CODE ...`."""
    return [sys.executable, "-P", CHILD, *(arguments[1:] if arguments[0] == "-m" else arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment of this process with its import path, and `more`, which wins over both."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))} | more
