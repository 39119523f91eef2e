"""Runs a command in a forked process with limits of time and memory, and watches what it opens and executes."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from support.imports import import_all

import gnnplace
from gnnplace import cli, kept
from gnnplace.baselines.heft import heft
from gnnplace.bounds.bounds import lower_bound
from gnnplace.costs import roofline
from gnnplace.formats.clusters import cluster_of
from gnnplace.formats.graphs import graph_of
from gnnplace.isolation.scratch import PREFIX
from gnnplace.simulator.simulator import simulate as simulate_step
from tests.hostile.documents import CLUSTER, GRAPH

IMPORTED = "options", "clusters", "graphs", "place", "simulate", "train"
ROOT = Path(gnnplace.__file__).parents[1]
SYSTEM = ("/proc", "/sys", "/usr", "/lib", "/lib64", "/etc", "/dev/null", "/dev/urandom", "/dev/shm")
OURS = ("gnnplace", "gnnplace.egg-info", "datasets", "configs", "tests")  # Lightning reads the entry points of what is installed
READ = tuple(map(os.path.realpath, (*SYSTEM, sys.prefix, sys.base_prefix, *(ROOT / name for name in OURS))))
CACHED = ("gnnplace", "numba", "llvmlite", "numpy", "copyreg")  # of the machine code that Numba keeps
NEVER = ("os.system", "os.exec", "os.posix_spawn", "socket.connect", "socket.bind", "socket.getaddrinfo", "pty.spawn")
TEMPORARY = re.compile(r"\.([^/]*)\.[0-9a-f]{8}\.tmp$")  # of `formats.atomic`
LATE = 10  # times its processor time, after which a process is killed that waits for something: cores may be busy with other work


class Ended(NamedTuple):
    """How a command ended: its status (negative: the signal that killed it), what it printed, and what it did that it must not do."""

    status: int
    out: str
    err: str
    seen: str


@cache
def _warm() -> None:
    """Imports what commands import, and loads the machine code that they run, once, before cases are forked."""
    import_all(*IMPORTED)
    problem = roofline.problem(graph_of(GRAPH), cluster_of(CLUSTER))
    simulate_step(problem, [heft(problem, simulate_step)])
    lower_bound(problem)


def run(arguments: Sequence[str], folder: Path, named: Sequence[str], cpu_s: int, memory_bytes: int) -> Ended:
    """`gnnplace ARGUMENTS` in a folder, with so much more memory than it has at the start.

    There it may open the files and folders that are `named`, what these folders hold, and our temporaries of these files.
    """
    _warm()
    with tempfile.TemporaryDirectory() as notes:
        paths = [Path(notes) / name for name in ("out", "err", "seen")]
        pid = os.fork()
        if pid == 0:
            _child(arguments, folder, named, paths, cpu_s, memory_bytes)
        _, status = os.waitpid(pid, 0)
        texts = [path.read_text(errors="replace") if path.exists() else "" for path in paths]
    return Ended(os.waitstatus_to_exitcode(status), *texts)


def _child(arguments: Sequence[str], folder: Path, named: Sequence[str], paths: list[Path], cpu_s: int, memory_bytes: int) -> None:
    """The life of the forked process; never returns."""
    status, seen = 1, list[str]()
    try:
        os.chdir(folder)
        for number, path in ((1, paths[0]), (2, paths[1])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        notes = os.open(paths[2], os.O_WRONLY | os.O_CREAT)
        alone(memory_bytes)
        limit_time(cpu_s)
        sys.addaudithook(_watch(Path.cwd(), named, seen))
        status = _status(lambda: cli.main(list(arguments)))
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(notes, "\n".join(dict.fromkeys(seen)).encode())
    finally:
        os._exit(status)


def _status(command: Callable[[], int]) -> int:
    try:
        return command()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


def alone(memory_bytes: int) -> None:
    """Makes a fork fit to run alone, with so much more memory at most: a soft limit, since the package's child processes have their own."""
    torch.set_num_threads(1)  # a fork has no threads of OpenMP, and waits for them for ever
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory_bytes, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def limit_time(cpu_s: int) -> None:
    """Kill this process after so much more processor time, or `LATE` times that on the clock."""
    now = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(now) + cpu_s, resource.RLIM_INFINITY))
    signal.alarm(LATE * cpu_s)


def _watch(folder: Path, named: Sequence[str], seen: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that notes what a command in `folder` must not do."""
    ours = {os.path.realpath(folder / name) for name in named}
    roots = (*READ, os.path.realpath(kept.folder() or os.devnull))
    temporary = os.path.realpath(tempfile.gettempdir())

    def within(path: str, places: Iterable[str]) -> bool:
        return any(path == place or path.startswith(place + os.sep) for place in places)

    def may_open(given: Any) -> bool:
        if not isinstance(given, str | bytes | os.PathLike):
            return True  # a descriptor
        path = os.path.realpath(os.fsdecode(given))
        if within(path, (str(folder),)):
            return path == str(folder) or within(TEMPORARY.sub(r"\1", path), ours)
        own = (
            os.path.dirname(path) == temporary
            or path == temporary
            or path.startswith(tuple(os.path.join(temporary, name) for name in ("tmp", PREFIX)))
        )
        return own or within(path, (*ours, *roots))

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and not may_open(given[0]):
            seen.append(f"opened {given[0]!r}")
        elif event in NEVER:
            seen.append(f"{event} {given[:2]!r}"[:200])
        elif event == "subprocess.Popen" and not (
            given[0] == sys.executable and any(str(each).startswith("gnnplace.") for each in given[1])
        ):
            seen.append(f"started {given[1]!r}"[:200])
        elif event == "pickle.find_class" and given[0].partition(".")[0] not in CACHED and given != ("builtins", "object"):
            seen.append(f"unpickled {given!r}")
        elif event == "exec" and not may_open(getattr(given[0], "co_filename", "<")) and not given[0].co_filename.startswith("<"):
            seen.append(f"executed {given[0].co_filename!r}")

    return hook


def call(function: Callable[[], object], cpu_s: int = 20) -> None:
    """Calls a function in a forked process; what it raises is raised here: ValueError, or RuntimeError for all else, crashes included."""
    with tempfile.TemporaryFile() as notes:
        pid = os.fork()
        if pid == 0:
            said, status = "", 1
            try:
                signal.alarm(LATE * cpu_s)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                function()
                status = 0
            except ValueError as error:
                said, status = str(error), 4
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            finally:
                os.write(notes.fileno(), said.encode(errors="backslashreplace")[:10_000])
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        notes.seek(0)
        said = notes.read().decode()
    if status == 4:
        raise ValueError(said)
    if status:
        raise RuntimeError(f"ended with {status}: {said}")
