"""The process between the parent and a host: it outlives the host, kills all its descendants, and then ends.

The keeper is the subreaper of the host's descendants, so it also inherits those in other sessions. It kills all of them
when the host ends, when the deadline passes, or when the parent's end of the pipe closes, which happens however the
parent ends. It can't kill a process that kills or stops the keeper first, or that a daemon started; even then the host
and its device processes die with the keeper. This module imports and allocates little.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from time import monotonic

from gnnplace.isolation.linux import die_with_parent, inherit_orphans


def main() -> None:
    """Runs `keeper LIFE REQUESTS`, two file descriptors: forks a host that serves REQUESTS.

    LIFE receives deadlines (`monotonic`, or None) and sends the exit status of the host.
    """
    life, requests = int(sys.argv[1]), int(sys.argv[2])
    inherit_orphans()
    keeper = os.getpid()
    host = os.fork()
    if host == 0:
        os.close(life)
        os.setsid()  # signals to the host's process group don't reach the keeper
        die_with_parent(keeper)
        _serve(requests)
        return
    os.close(requests)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _keep(Connection(life), host)


def _serve(requests: int) -> None:
    from gnnplace.execution.host import serve  # imported only in the host: the keeper stays small

    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        serve(Connection(requests))


def _keep(life: Connection, host: int) -> None:
    """Waits for the end, kills all descendants, and sends the exit status of the host."""
    ended, deadline = os.pidfd_open(host), None
    with suppress(EOFError, ConnectionResetError):
        while life in wait([life, ended], None if deadline is None else max(0.0, deadline - monotonic())):
            deadline = life.recv()
    status = _end_all(host)
    with suppress(BrokenPipeError, ConnectionResetError):
        life.send(status)


def _end_all(host: int) -> int:
    """Kills children until none is left. The keeper inherits the children of a dead child.

    Returns the exit status of the host.
    """
    exit_code = 0
    while True:
        for child in _children():
            os.kill(child, signal.SIGKILL)
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return exit_code
        if ended == host:
            exit_code = os.waitstatus_to_exitcode(status)


def _children() -> Iterator[int]:
    """The pids of this process' children."""
    pid = os.getpid()
    for name in os.listdir("/proc"):
        with suppress(ValueError, FileNotFoundError, ProcessLookupError), open(f"/proc/{int(name)}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == pid:
                yield int(name)


if __name__ == "__main__":
    main()
