"""A command in a process of its own that starts at once: a fork of this process, which has imported what takes seconds."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path

from support.imports import import_all
from support.interrupts import interruptible
from support.processes import HUNG_S, LATE_S, alive, marked
from support.short_searches import LITTLE

from gnnplace import cli, start
from gnnplace.isolation.scratch import PREFIX
from gnnplace.portfolio import planners, portfolio

IMPORTED = "options", "place", "graphs", "simulate", "compare", "train"


@dataclass
class Ended:
    """How a command ended: its status (negative: the signal that killed it), and what it printed."""

    status: int
    out: str
    err: str


class Started:
    """A command that runs in `folder`, in a group of processes of its own."""

    def __init__(self, folder: Path, arguments: Sequence[str], before: Callable[[], None] = lambda: None) -> None:
        warm()
        self._folder = folder
        self._number = len(list(folder.glob("out-*")))
        self._files = [folder / f"{name}-{self._number}" for name in ("out", "err")]
        for path in self._files:
            path.touch()
        (folder / "tmp").mkdir(exist_ok=True)
        with marked() as self._mark, interruptible():
            self.pid = os.fork()
            if self.pid == 0:
                self._become(arguments, before)
        os.setpgid(self.pid, self.pid)

    def _become(self, arguments: Sequence[str], before: Callable[[], None]) -> None:
        status = 70
        try:
            os.setpgid(0, 0)
            os.chdir(self._folder)
            for descriptor, path in zip((1, 2), self._files, strict=True):
                os.dup2(os.open(path, os.O_WRONLY), descriptor)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False, buffering=1)
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
            os.environ |= {"TMPDIR": str(self._folder / "tmp"), "GNNPLACE_DATASETS": str(self._folder / "datasets")}
            tempfile.tempdir = None
            signal.alarm(HUNG_S)
            before()
            status = start.main(arguments)
        except BaseException as error:
            import traceback

            traceback.print_exception(error, file=sys.stderr)
        finally:
            sys.stdout.flush()
            os._exit(status)

    def signal(self, number: int) -> None:
        """Sends a signal to all of its group, as a terminal does; one that kills to the command alone, as the kernel does."""
        os.kill(self.pid, number) if number == signal.SIGKILL else os.killpg(self.pid, number)

    @property
    def running(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> Ended:
        _, status = os.waitpid(self.pid, 0)
        self._killed = os.WIFSIGNALED(status)
        return Ended(os.waitstatus_to_exitcode(status), *(path.read_text(errors="replace") for path in self._files))

    def left(self) -> str | None:
        """What it has left behind: processes after a while, files in the temporary folder, but the one that the next removes."""
        late = time.monotonic() + LATE_S
        while found := alive(self._mark) - {os.getpid()}:
            if time.monotonic() > late:
                return f"processes {sorted(found)} are left"
            time.sleep(0.05)
        files = [path.name for path in (self._folder / "tmp").iterdir() if not (self._killed and path.name.startswith(PREFIX))]
        return f"{files} are left in the temporary folder" if files else None


@cache
def warm() -> None:
    """Imports what commands import, and loads machine code, once for all forks. Searches are given little."""
    import_all(*IMPORTED)
    import_module("mlflow")
    for name, value in LITTLE.items():
        for module in (planners, portfolio):
            if hasattr(module, name):
                setattr(module, name, value)
    with redirect_stdout(StringIO()):
        assert cli.main(["place", "dlrm", "--cluster", "k40-2", "--planner", "heft", "-q"]) == 0
