"""SIGINT and SIGTERM at forty moments of each of eight commands, dense at its start and at its end, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.dom.minidom
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from faults.case import Case
from faults.cases import following
from faults.commands import IMPORT, TINY, damaged, imported_another, prepare, resumed, temporaries
from faults.processes import Ended
from support.fork_on_pair import IN
from support.interrupts import interruptible
from support.processes import HUNG_S, LATE_S, alive, marked

from gnnplace.isolation.linux import processor_ns

SIGNALS = {"SIGINT": 130, "SIGTERM": 143}
PYTHONS_OWN = {"SIGINT": (-2, 1), "SIGTERM": (-15,)}  # before the first line of ours, the one with a traceback
MOMENTS = 40
POLL_S = 0.001
LAGS_S = 0.0, 0.05, 0.3  # after a moment, for a command that waits for others works no more
NET = """
import torch
from gnnplace import TorchStep

def step():
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return TorchStep(net, lambda net, x: net(x).sum(), (torch.zeros(3, 4),))
"""
FILES = ("--problems=[[graph.json, cluster.json]]", "--tracking=none", "-q")
HSDAG = ("--policy=hsdag", "--policy.width=4", "--training.placements=2", "--training.updates=1", "--training.threads=1")
COMMANDS = {
    "place": ("place", *IN, "--evaluations=30", "-o", "placed.json", "-q"),
    "place with a report": ("place", *IN, "--planner=heft", "-o", "placed.json", "--report", "placed.html", "-q"),
    "compare": ("compare", *IN, "--evaluations=9", "--csv", "table.csv", "-q"),
    "export": ("export", *IN, "--placement", "placement.json", "--to", "graphml", "-o", "placed.graphml", "-q"),
    "import": IMPORT,
    "train": ("train", "--problems=[[graph.json, cluster.json]]", *TINY, "--tracking=none"),
    "train hsdag": ("train", *FILES, *HSDAG),
    "measure": ("measure", "net.py:step", "--cluster=cpu-2", "--planner=random", "--protocol=paper", "-o", "measured.json", "-q"),
}  # fmt: skip

AGAIN = {"import": imported_another, "train": resumed}  # what a user gives next


@dataclass
class Running:
    """A command in a process and a group of its own, in a folder that it may write."""

    folder: Path
    arguments: tuple[str, ...]
    mark: str = ""
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        prepare(self.folder)
        (self.folder / "net.py").write_text(NET)
        (self.folder / "tmp").mkdir()
        with marked() as self.mark, interruptible(), open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            settings = {"TMPDIR": f"{self.folder}/tmp", "OMP_NUM_THREADS": "1"}
            if self.arguments == IMPORT:
                settings |= {"GNNPLACE_DATASETS": f"{self.folder}/datasets"}
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gnnplace", *self.arguments], cwd=self.folder, env=os.environ | settings,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0,
            )  # fmt: skip

    def wait(self, until_ns: int | None = None, late: float | None = None) -> bool:
        """Waits for the end, until the command has had so much of a processor, or until it is late; whether it runs still."""
        hung = time.monotonic() + HUNG_S
        while os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if until_ns is not None and processor_ns(self.process.pid) >= until_ns:
                return True
            if late is not None and time.monotonic() >= late:
                return True
            if time.monotonic() > hung:
                self.process.kill()
            time.sleep(POLL_S)
        return False

    def listens(self) -> bool:
        """Whether it has begun to handle SIGTERM, which Python itself does not."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), 16)
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def end(self) -> Ended:
        self.wait()
        return Ended(self.process.wait(), *((self.folder / name).read_text(errors="replace") for name in ("out", "err")))

    def left(self) -> str | None:
        """What it has left behind: processes after a while, files in the temporary folder."""
        late = time.monotonic() + LATE_S
        while found := alive(self.mark):
            if time.monotonic() > late:
                return f"processes {sorted(found)} are left"
            time.sleep(0.05)
        files = [path.name for path in (self.folder / "tmp").iterdir()]
        return f"{files} are left in the temporary folder" if files else None


def cases() -> Iterator[Case]:
    """Every moment of every command."""
    for name in COMMANDS:
        for number in SIGNALS:
            yield from moments(name, number)


def moments(name: str, number: str, count: int = MOMENTS) -> Iterator[Case]:
    """A signal at so many moments of a command: the first half is dense at its start, the second at its end."""
    half = count // 2
    starts = [(each / half) ** 3 / 2 for each in range(half)]
    for index, share in enumerate((*starts, *(1 - share for share in reversed(starts)))):
        more_s = LAGS_S[index % len(LAGS_S)]
        yield Case(number, f"{name}, after {share:.2%} of its work and {more_s:g} s", partial(_broken, name, number, share, more_s))


@cache
def _takes_ns(name: str) -> int:
    """The processor time of a command that nothing interrupts."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder) / "case", COMMANDS[name])
        running.wait()
        taken = processor_ns(running.process.pid)
        ended = running.end()
        assert (ended.status, _said(ended)) == (0, []), ended.err
    return taken


def _broken(name: str, number: str, share: float, more_s: float, folder: Path) -> str | None:
    running = Running(folder, COMMANDS[name])
    began = False
    if running.wait(int(share * _takes_ns(name))) and running.wait(late=time.monotonic() + more_s):
        began = running.listens()
        os.killpg(running.process.pid, getattr(signal, number))
    ended = running.end()
    wrong = _wrong(name, number, ended, began) or _damaged(folder) or temporaries(folder) or running.left()
    return wrong or (following(folder, AGAIN[name](folder)) if name in AGAIN else None)


def _wrong(name: str, number: str, ended: Ended, began: bool) -> str | None:
    """What is wrong with how a command ended: it is done, or it says in one line what ended it."""
    said = _said(ended)
    one_line = len(said) == 1 and said[0].startswith(f"gnnplace {COMMANDS[name][0]}: ")
    if (ended.status == SIGNALS[number] and one_line) or (ended.status, said) == (0, []):
        return None
    if not began and ended.status in PYTHONS_OWN[number]:
        return None
    return f"status {ended.status}: {ended.err}"


def _said(ended: Ended) -> list[str]:
    """The lines of a quiet command's stderr, but for PyTorch's own, which it writes in processes that measure."""
    return [line for line in ended.err.splitlines() if not line.startswith("[W")]


def _damaged(folder: Path) -> str | None:
    try:
        for path in folder.glob("*.graphml"):
            xml.dom.minidom.parse(str(path))
        for path in folder.glob("*.html"):
            assert path.read_text().endswith("</html>\n"), path.name
        for path in folder.glob("*.csv"):
            assert path.read_text().endswith("\n"), path.name
    except Exception as error:
        return f"damaged: {type(error).__name__}: {error}"
    return damaged(folder)
