"""Reads an ONNX file in a child process that has little time and memory: what it says comes back as plain records.

Promises: whatever the file holds, a ValueError of one line or a `Model`, within the limits below; nothing of the file is parsed in
this process, and no other file is opened for it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from gnnplace.frontends.onnx_model import Model, from_json

MAX_FILE_BYTES = 2**31 - 1  # as much as protobuf takes
CPU_S = 120
LIMIT_S = 300.0  # on a busy machine
MEMORY_BYTES = 4 * 2**30  # of addresses, beside three times the file
MOST_DIM = 2**40
COMMAND = "gnnplace.frontends.onnx_child"


def read_model(file: str | os.PathLike[str], dims: Mapping[str, int]) -> Model:
    """The network in an ONNX file, `dims` being the sizes of its named dimensions.

    Raises ValueError where the package onnx is missing, for bad sizes, and for whatever is wrong with the file; OSError where it
    can't be read.
    """
    path = os.fspath(file)
    if find_spec("onnx") is None:
        raise ValueError(f'{path}: reading ONNX files needs the package onnx: pip install "gnnplace[onnx]"')
    for name, size in dims.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST_DIM:
            raise ValueError(f"dims: {name!r}: {size!r} is no size between 1 and {MOST_DIM}")
    size = _size(path)
    limits = {"cpu_s": CPU_S, "memory_bytes": MEMORY_BYTES + 3 * size}
    answer = _ask(path, json.dumps({"file": os.path.abspath(path), "dims": dict(dims)} | limits))
    if "refused" in answer:
        raise ValueError(f"{path}: {answer['refused']}")
    return from_json(answer["model"])


def _size(path: str) -> int:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
        status = os.fstat(opened.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path}: is no regular file")
    if not 0 < status.st_size <= MAX_FILE_BYTES:
        raise ValueError(f"{path}: {status.st_size} bytes; an ONNX file has 1 to {MAX_FILE_BYTES} (weights may lie beside it)")
    return status.st_size


def _ask(path: str, request: str) -> dict:
    """The child's answer to a request about the file at `path`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", COMMAND, request]
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise ValueError(f"{path}: reading it takes more than {LIMIT_S:g} s") from None
    if done.returncode == 0:
        return json.loads(done.stdout)
    raise ValueError(f"{path}: {_failure(done.returncode, done.stderr.decode(errors='replace'))}")


def _failure(status: int, errors: str) -> str:
    """What went wrong in the child, in words."""
    if -status == signal.SIGXCPU:
        return f"reading it takes more than {CPU_S} s of processor time"
    if re.search(r"MemoryError|bad_alloc", errors):
        return f"reading it takes more memory than {MEMORY_BYTES // 2**20} MiB and three times the file"
    if status < 0:
        return f"reading it crashed the package onnx (signal {-status})"
    return f"the package onnx can't read it: {(errors.strip().splitlines() or ['it says nothing'])[-1][:300]}"
