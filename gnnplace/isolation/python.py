"""Python in a process of its own: every child that runs our code has this command line, environment and main program.

The child imports from where this process does, and not from the current folder: a file there named like a module of a
library is the user's, and never run (CWE-427). Nor does it read settings that lie there.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

MAIN = str(Path(__file__).resolve())


def command(*arguments: str) -> list[str]:
    """The command line of a Python that is given `arguments`: `-m MODULE ...`, a module of ours, or `-c CODE ...`.

    This file is its main program, by its absolute path. TensorFlow takes the first word of the command line for a file,
    and loads libraries that lie beside it: of `python -m MODULE` in a folder `MODULE` of the current one.
    """
    return [sys.executable, "-P", MAIN, *(arguments[1:] if arguments[0] == "-m" else arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment of this process with its import path, and `more`, which wins over both."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))} | more


def main() -> None:
    """Runs a module, or a text, as the main program that it would have been."""
    from gnnplace.isolation import imports

    imports.leave_settings_of_this_folder()
    del sys.argv[0]
    if sys.argv[0] == "-c":
        exec(sys.argv.pop(1), {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
