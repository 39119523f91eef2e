"""The command line, environment and main program of every child process that runs our code.

The child has this process' import path, without the current folder: a user's file there may have the name of a
library's module and must not run (CWE-427). The child reads no settings from the current folder either.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

MAIN = str(Path(__file__).resolve())


def command(*arguments: str) -> list[str]:
    """The command line that runs `arguments`: `-m MODULE ...` (one of our modules) or `-c CODE ...`.

    This file is the main program, by its absolute path. TensorFlow takes the first word of the command line for a file
    and loads libraries beside it; for `python -m MODULE` these would be libraries in a folder `MODULE` of the current
    folder.
    """
    return [sys.executable, "-P", MAIN, *(arguments[1:] if arguments[0] == "-m" else arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment of this process, with its import path and, with precedence, the variables in `more`."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))} | more


def main() -> None:
    """Runs a module, or code given as text, as if it were the main program."""
    from gnnplace.isolation import imports

    imports.leave_settings_of_this_folder()
    del sys.argv[0]
    if sys.argv[0] == "-c":
        exec(sys.argv.pop(1), {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
