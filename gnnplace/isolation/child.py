"""`python -m gnnplace.isolation.child MODULE ...`: a module of ours as a child process runs it, without settings of the current folder."""

from __future__ import annotations

import runpy
import sys

from gnnplace.isolation import settings

if __name__ == "__main__":
    settings.leave_those_of_this_folder()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
