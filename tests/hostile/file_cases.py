"""Files that are no files, given to every reader: pipes without a writer, devices without an end, folders, loops, terabytes of nothing."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.hostile.command_case import HostileFile
from tests.hostile.documents import CLUSTER, EVIL, GRAPH, PLACEMENT

TERABYTE = 2**40
OTHERS = {f"{name}.json": json.dumps(each).encode() for name, each in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", PLACEMENT))}
READERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "graph": ("f.json", ("graphs", "show", "./f.json")), "cluster": ("f.json", ("clusters", "show", "./f.json")),
    "placement": ("f.json", ("simulate", "graph.json", "--cluster", "cluster.json", "--placement", "f.json")),
    "costs": ("f.json", ("simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--costs", "f.json")),
    "checkpoint": ("f.safetensors", ("place", "graph.json", "--cluster", "cluster.json", "--checkpoint", "f.safetensors", "-q")),
    "YAML": ("f.yaml", ("train", "--config", "f.yaml", "-q")), "OpenVINO": ("f.xml", ("graphs", "show", "./f.xml")),
    "profile": ("f.txt", ("graphs", "show", "./f.txt", "--format", "pipedream")),
    "ONNX": ("f.onnx", ("graphs", "show", "./f.onnx")), "GraphDef": ("f.pb", ("graphs", "show", "./f.pb")),
}  # fmt: skip


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TERABYTE)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/{path.name}")  # a name of a socket has at most 107 characters
        os.close(folder)


ODD: Mapping[str, Callable[[Path], object]] = {
    "a pipe that nobody writes to": os.mkfifo, "a folder": Path.mkdir, "a terabyte of nothing": _sparse, "a socket": _socket,
    "a link to itself": lambda path: path.symlink_to(path), "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to a folder's secret": lambda path: path.symlink_to("/dev/fd/99"), "a link to nothing": lambda path: path.symlink_to("none"),
    "a link to the terminal": lambda path: path.symlink_to("/dev/tty"), "missing": lambda path: None,
}  # fmt: skip


def cases() -> Iterator[HostileFile]:
    """Each odd file for each reader, and names of files that a terminal must not see as they are."""
    for kind, (file, arguments) in READERS.items():
        if kind in ("ONNX", "GraphDef") and not _reads(kind):
            continue
        for name, make in ODD.items():
            yield HostileFile(kind, name, arguments, OTHERS, "f[.]", prepare=lambda folder, make=make, file=file: make(folder / file))
        evil = tuple(each.replace("f.", f"{EVIL}.") for each in arguments)
        yield HostileFile(kind, "a name of escapes", evil, OTHERS, r"x1b\[2J")
        yield HostileFile(kind, "a long name", tuple(each.replace("f.", "n" * 5000 + ".") for each in arguments), OTHERS, "nnnn")


def _reads(kind: str) -> bool:
    from importlib.util import find_spec

    return find_spec({"ONNX": "onnx", "GraphDef": "tensorflow"}[kind]) is not None
