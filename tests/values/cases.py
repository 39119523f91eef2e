"""Documents by value: every numeric field near 0 and near powers of two, with every planner, policy and command, each within limits."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gnnplace.baselines.cp_sat import exact
from tests.hostile import confined
from tests.values.documents import Changed, all_changed
from tests.values.tried import all_of, wrote_nothing_half

CPU_S = 20  # of each thing that is tried
MEMORY_BYTES = 8 * 2**30
NOTE = "tried"


@dataclass(frozen=True)
class ValueCase:
    """The documents of a problem with a value at a place: whatever is tried with them holds, or is refused in a line, within limits."""

    changed: Changed

    @property
    def kind(self) -> str:
        return f"values of {self.changed.kind}"

    @property
    def name(self) -> str:
        return self.changed.name

    def broken(self, folder: Path) -> str | None:
        folder.mkdir()
        for name, content in self.changed.files().items():
            (folder / name).write_bytes(content)
        confined._warm()
        pid = os.fork()
        if pid == 0:
            self._child(folder)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = (folder / NOTE).read_text()
        if status < 0:
            return f"{said}: killed by {signal.Signals(-status).name}, as a limit of time or memory does"
        return wrote_nothing_half(folder) if status == 0 else said

    def _child(self, folder: Path) -> None:
        """The life of the forked process; never returns."""
        status, name = 1, "reading"
        try:
            os.chdir(folder)
            confined.alone(MEMORY_BYTES)
            for name, tried in all_of(self.changed.kind, self.changed.documents):
                Path(NOTE).write_text(name)
                confined.limit_time(CPU_S)
                if said := tried():
                    Path(NOTE).write_text(f"{name}: {said}")
                    os._exit(1)
            status = 0
        except BaseException as error:
            Path(NOTE).write_text(f"{name}: {type(error).__name__}: {error}"[:500])
        finally:
            exact._process.cache_clear()
            os._exit(status)


def cases() -> Iterator[ValueCase]:
    """All of them."""
    return map(ValueCase, all_changed())
