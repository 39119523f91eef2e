"""The main program of every child process: runs a module of ours, or a text, without settings of the current folder.

It is started by its absolute path. TensorFlow takes the first word of the command line for a file, and loads libraries that lie beside it:
of `python -m MODULE` in a folder `MODULE` of the current one.
"""

from __future__ import annotations

import runpy
import sys

from gnnplace.isolation import settings

if __name__ == "__main__":
    settings.leave_those_of_this_folder()
    del sys.argv[0]
    if sys.argv[0] == "-c":
        exec(sys.argv.pop(1), {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
