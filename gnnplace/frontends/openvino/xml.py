"""The XML of an OpenVINO IR (versions 10 and 11): layers, ports and edges, parsed by the standard library's expat.

Whatever the file holds, the result is a `LayerDocument` or a one-line ValueError. Counts and nesting are checked while
the file is read. A document type, and with it every entity, is refused. No other file is opened, not even the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

from gnnplace.frontends.network.network import MAX_RANK, shown
from gnnplace.isolation import regular_file

MAX_FILE_BYTES = 2**29
MAX_DEPTH = 32
MAX_LAYERS, MAX_PORTS, MAX_EDGES = 1_000_000, 5_000_000, 5_000_000
MAX_ELEMENTS = 20_000_000
MOST_TEXT = 2000  # longer attributes of a layer are left out
MOST_DIGITS = 40  # of a dimension, spaces included
PIECE_BYTES = 2**16  # parsed at once
MAX_TOKEN_BYTES = 2**20  # the largest tag or comment; expat scans an unfinished one again with every piece
VERSIONS = ("10", "11")
SUBGRAPHS = {
    "TensorIterator": "runs its body for each slice of its inputs, which is not taken apart here; convert the model "
    "with its loop unrolled",
    "Loop": "runs its body as often as its trip count and condition say; convert the model with its loop unrolled over "
    "a fixed number of steps",
    "If": "runs one of two bodies, as its condition says; convert the model with the branch that is taken in its place",
}
_NUMBER = re.compile(r"\s*-?\d{1,20}\s*", re.ASCII)
_WORD = re.compile(r"[\w.-]{1,100}")
_OPSET = re.compile(r"opset\d+")


@dataclass(slots=True)
class Port:
    """An output of a layer; -1 is a dimension without a fixed size."""

    id: int
    precision: str
    dims: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Layer:
    """One layer; `inputs` are the ids of its input ports, in order.

    A kind from outside OpenVINO's own operation sets has its version as a prefix.
    """

    id: int
    name: str
    kind: str
    data: Mapping[str, str] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)

    def __str__(self) -> str:
        return f"layer {shown(self.name)} ({self.kind})"


@dataclass(slots=True)
class LayerDocument:
    """The layers, in the file's order, and edges `(from layer, from port, to layer, to port)` by ids."""

    layers: list[Layer] = field(default_factory=list)
    edges: list[tuple[int, int, int, int]] = field(default_factory=list)


def read_document(path: str) -> LayerDocument:
    """The document in the file at `path`. Raises ValueError if it is not an IR, OSError if it can't be read."""
    reader = _Reader()
    with regular_file.opened(path, MAX_FILE_BYTES, f"the .xml of an OpenVINO model has 1 to {MAX_FILE_BYTES}") as file:
        try:
            reader.parse(file)
        except expat.ExpatError as error:
            raise ValueError(
                f"{path}: line {error.lineno}: is no XML, or cut short: {expat.ErrorString(error.code)}"
            ) from None
        except ValueError as error:
            raise ValueError(f"{path}: line {reader.parser.CurrentLineNumber}: {error}") from error
    return reader.document


class _Reader:
    """The handlers that expat calls. `_paths` are the paths of the open elements."""

    def __init__(self) -> None:
        self.document = LayerDocument()
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.StartDoctypeDeclHandler = _refuse_doctype
        self._paths = [""]
        self._text = ""
        self._ports = self._elements = 0
        self._handlers: dict[str, Callable[[dict[str, str]], None]] = {
            "/net": _check_version,
            "/net/layers/layer": self._layer,
            "/net/layers/layer/data": self._data,
            "/net/layers/layer/input/port": self._input,
            "/net/layers/layer/output/port": self._output,
            "/net/layers/layer/output/port/dim": self._dim,
            "/net/edges/edge": self._edge,
        }

    def parse(self, file: BinaryIO) -> None:
        """Reads the file to its end, in time proportional to its length."""
        num_read = 0
        while piece := file.read(PIECE_BYTES):
            self.parser.Parse(piece, False)
            num_read += len(piece)
            if num_read - max(0, self.parser.CurrentByteIndex) > MAX_TOKEN_BYTES:
                raise ValueError(f"a tag, comment or instruction of more than {MAX_TOKEN_BYTES} bytes")
        self.parser.Parse(b"", True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if len(self._paths) > MAX_DEPTH:
            raise ValueError(f"elements are nested more than {MAX_DEPTH} deep")
        if self._elements > MAX_ELEMENTS:
            raise ValueError(f"there are more than {MAX_ELEMENTS} elements")
        path = f"{self._paths[-1]}/{tag}"
        if len(self._paths) == 1 and path != "/net":
            raise ValueError(f"its root is <{tag[:80]}>; that of an OpenVINO IR is <net>")
        self._paths.append(path)
        if handler := self._handlers.get(path):
            handler(attributes)

    def _end(self, tag: str) -> None:
        if self._paths.pop() == "/net/layers/layer/output/port/dim":
            self.parser.CharacterDataHandler = None
            self.document.layers[-1].outputs[-1].dims.append(_number("dimension", self._text))

    def _layer(self, attributes: dict[str, str]) -> None:
        if len(self.document.layers) == MAX_LAYERS:
            raise ValueError(f"there are more than {MAX_LAYERS} layers")
        kind, version = attributes.get("type", ""), attributes.get("version", "opset1")
        for what, word in (("type", kind), ("version", version)):
            if not _WORD.fullmatch(word):
                raise ValueError(f"<layer>: {what} {shown(word)} is no word")
        full_kind = kind if _OPSET.fullmatch(version) else f"{version}.{kind}"
        layer = Layer(_id(attributes, "layer", "id"), attributes.get("name", ""), full_kind)
        if kind in SUBGRAPHS:
            raise ValueError(f"{layer}: {SUBGRAPHS[kind]}")
        self.document.layers.append(layer)

    def _data(self, attributes: dict[str, str]) -> None:
        self.document.layers[-1].data = {key: text for key, text in attributes.items() if len(text) <= MOST_TEXT}

    def _input(self, attributes: dict[str, str]) -> None:
        self.document.layers[-1].inputs.append(self._port(attributes))

    def _output(self, attributes: dict[str, str]) -> None:
        port = Port(self._port(attributes), attributes.get("precision", ""))
        self.document.layers[-1].outputs.append(port)

    def _port(self, attributes: dict[str, str]) -> int:
        self._ports += 1
        if self._ports > MAX_PORTS:
            raise ValueError(f"layers have more than {MAX_PORTS} ports")
        return _id(attributes, "port", "id")

    def _dim(self, _: dict[str, str]) -> None:
        if len(self.document.layers[-1].outputs[-1].dims) == MAX_RANK:
            raise ValueError(f"{self.document.layers[-1]}: an output has more than {MAX_RANK} dimensions")
        self._text = ""
        self.parser.CharacterDataHandler = self._characters

    def _characters(self, text: str) -> None:
        self._text += text
        if len(self._text) > MOST_DIGITS:
            raise ValueError(f"dimension {shown(self._text)} is no whole number")

    def _edge(self, attributes: dict[str, str]) -> None:
        if len(self.document.edges) == MAX_EDGES:
            raise ValueError(f"there are more than {MAX_EDGES} edges")
        ends = (_id(attributes, "edge", key) for key in ("from-layer", "from-port", "to-layer", "to-port"))
        self.document.edges.append((next(ends), next(ends), next(ends), next(ends)))


def _check_version(attributes: dict[str, str]) -> None:
    if (version := attributes.get("version", "")) not in VERSIONS:
        raise ValueError(
            f"<net>: version {shown(version)} is none of {', '.join(VERSIONS)}; convert the model with a newer OpenVINO"
        )


def _refuse_doctype(*_: object) -> None:
    raise ValueError("a document type (<!DOCTYPE>), and what entities it may define, is not read")


def _id(attributes: Mapping[str, str], tag: str, key: str) -> int:
    if key not in attributes:
        raise ValueError(f"<{tag}>: has no {key}")
    return _number(f"<{tag}>: {key}", attributes[key])


def _number(place: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{place} {shown(text)} is no whole number")
    return int(text)
