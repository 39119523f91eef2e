"""Reads a possibly hostile file in a child process with limited time and memory; parent and child side.

The parent calls `ask`, which runs `python -m CHILD REQUEST`; the child's `main` calls `answer`. Whatever the file
holds, `ask` returns the child's answer or raises a one-line ValueError within the limits below. The parent never parses
the file.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from gnnplace.complaints import printable
from gnnplace.isolation import python, regular_file
from gnnplace.isolation.linux import die_with_parent

MAX_FILE_BYTES = 2**31 - 1  # the most that protobuf reads
MOST_DIM = 2**40
MOST_ERROR_BYTES, MOST_WRITTEN_BYTES = 2**16, 2**24  # kept of stderr, and written to any file
LIMIT_S = 300.0  # wall-clock time, generous for a busy machine
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}


class Child(NamedTuple):
    """A reader in a child process, and its limits."""

    module: str
    package: str  # needed by the module; the extra of gnnplace that installs it has the same name
    what: str  # a file of this format, in words
    cpu_s: int = 120
    memory_bytes: int = 4 * 2**30  # address space on top of the imports and three times the file


def check_dims(dims: Mapping[str, int]) -> None:
    """Raises ValueError for a size that is not an integer from 1 to `MOST_DIM`."""
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_DIM:
            raise ValueError(f"dims: {name!r}: {size!r} is no size between 1 and {MOST_DIM}")


def ask(child: Child, path: str, arguments: Mapping[str, Any]) -> Any:
    """The child's answer about the file at `path`; `arguments` are further arguments in JSON's types.

    Raises ValueError if the package is missing, the child refuses the file or the child fails; OSError if the file
    can't be read.
    """
    if find_spec(child.package) is None:
        raise ValueError(
            f'{path}: reading {child.what} needs the package {child.package}: pip install "gnnplace[{child.package}]"'
        )
    size = _size(child, path)
    limits = {
        "file": os.path.abspath(path),
        "parent": os.getpid(),
        "cpu_s": child.cpu_s,
        "memory_bytes": child.memory_bytes + 3 * size,
    }
    command = python.command("-m", child.module, json.dumps(limits | dict(arguments)))
    with TemporaryFile() as stderr:
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                timeout=LIMIT_S,
                env=python.environment(**ENVIRONMENT),
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"{path}: reading it takes more than {LIMIT_S:g} s") from None
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - MOST_ERROR_BYTES))
        errors = stderr.read().decode(errors="replace")
    if process.returncode:
        raise ValueError(f"{path}: {_failure(child, process.returncode, errors)}")
    reply = json.loads(process.stdout)
    if "refused" in reply:
        raise ValueError(f"{path}: {reply['refused']}")
    return reply["result"]


def answer(request: str, read: Callable[[Mapping[str, Any]], Any]) -> None:
    """In the child: prints the result or the ValueError of `read` as one line of JSON; other output goes to stderr."""
    arguments = json.loads(request)
    die_with_parent(arguments["parent"])
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _limit(arguments["cpu_s"], arguments["memory_bytes"])
        try:
            reply = {"result": read(arguments)}
        except ValueError as error:
            reply = {"refused": printable(" ".join(str(error).split()))}
        json.dump(reply, answers)


def _limit(cpu_s: int, memory_bytes: int) -> None:
    """Limits this process; `cpu_s` and `memory_bytes` are on top of what its imports have taken."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # for messages of libraries; the answer goes to a pipe, which has no such limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN_BYTES, MOST_WRITTEN_BYTES))
    cpu_s += math.ceil(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    memory_bytes += _addresses_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _size(child: Child, path: str) -> int:
    with regular_file.opened(path, MAX_FILE_BYTES, f"{child.what} has 1 to {MAX_FILE_BYTES}") as file:
        return os.fstat(file.fileno()).st_size


def _addresses_bytes() -> int:
    """The size of this process' address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _failure(child: Child, status: int, errors: str) -> str:
    """Why the child ended with this exit status (negative: a signal); `errors` is the end of its stderr."""
    if -status == signal.SIGXCPU:
        return f"reading it takes more than {child.cpu_s} s of processor time"
    more = f"more memory than {child.memory_bytes // 2**20} MiB and three times the file"
    if re.search(r"MemoryError|bad_alloc|[Cc]annot allocate memory", errors):
        return f"reading it takes {more}"
    if status < 0:  # protobuf may not check whether an allocation has failed
        return f"reading it crashed the package {child.package} (signal {-status}); it may take {more}"
    return (
        f"the package {child.package} can't read it: {(errors.strip().splitlines() or ['it says nothing'])[-1][:300]}"
    )
