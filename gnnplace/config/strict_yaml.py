"""Strict YAML: a file to plain data, or a ValueError of one line.

Besides invalid YAML it refuses files over a limit of bytes, tags, repeated keys, keys that are no text, deep nesting,
aliases of a node that contains them, and aliases of too many nodes (a few lines can stand for billions).
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from typing import Any

import yaml

from gnnplace.formats.strict_json import shown
from gnnplace.isolation import regular_file

MAX_BYTES = 2**18
MAX_DEPTH = 20
MAX_NODES = 10_000
TEXT = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")  # and <<, which takes over another map


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The map in a file. Raises ValueError (one line, the path first), also where the file can't be read."""
    try:
        return loads(regular_file.read(os.fspath(path), MAX_BYTES))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def loads(data: bytes) -> dict[str, Any]:
    """The map in some bytes. Raises ValueError (one line) if they are no map."""
    try:
        document = yaml.load(data.decode("utf-8"), _Loader)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start}: not UTF-8") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: of a date, a number of thousands of digits
        raise ValueError(" ".join(str(error).replace('in "<unicode string>", ', "").split())) from None
    if not isinstance(document, dict):
        raise ValueError(f"{shown(document)}: a map of knobs is due")
    return document


def value(text: str) -> Any:
    """The value of a text on a command line; what is no YAML is text. Raises ValueError for nesting beyond the limits.

    >>> value("[[dlrm, k40-2]]"), value("1e-3")
    ([['dlrm', 'k40-2']], 0.001)
    """
    try:
        return yaml.load(text, _CommandLine)
    except _TooMuch as error:
        raise ValueError(f"{shown(text)}: {error.problem}") from None
    except (yaml.YAMLError, ValueError):
        return text


class _TooMuch(yaml.composer.ComposerError):
    """Nesting or aliases beyond the limits."""


class _Loader(yaml.SafeLoader):
    """Plain data alone, each node once."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._open: list[int] = [0]  # the nodes in each of the open ones
        self._height = [0]  # and how deep they go
        self._known: dict[int, tuple[int, int]] = {}  # the same of nodes that are complete

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        mark = self.peek_event().start_mark
        self._open.append(1)
        self._height.append(1)
        self._check(sum(self._open), len(self._open) - 1, mark)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        nodes, height = self._open.pop(), self._height.pop()
        if is_alias:
            if id(node) not in self._known:
                raise _TooMuch(None, None, "an alias stands for what it is in", mark)
            nodes, height = self._known[id(node)]
            self._check(sum(self._open) + nodes, len(self._open) - 1 + height, mark)
        self._known[id(node)] = nodes, height
        self._open[-1] += nodes
        self._height[-1] = max(self._height[-1], height + 1)
        return node

    def _check(self, nodes: int, depth: int, mark: yaml.Mark) -> None:
        if depth > MAX_DEPTH:
            raise _TooMuch(None, None, f"nested more than {MAX_DEPTH} deep", mark)
        if nodes > MAX_NODES:
            raise _TooMuch(None, None, f"more than {MAX_NODES} values, those that aliases stand for included", mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in TEXT:
                raise yaml.constructor.ConstructorError(None, None, "a key is due that is text", key.start_mark)
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{shown(key.value)} stands there twice", key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)


for tag in ("binary", "set", "omap", "pairs"):  # no knob is one, and pydantic would convert them
    _Loader.add_constructor(f"tag:yaml.org,2002:{tag}", yaml.constructor.SafeConstructor.construct_undefined)


class _CommandLine(_Loader):
    """Reads `1e-3` as a number, as YAML 1.2 does and a user means."""


_CommandLine.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"), list("-+.0123456789")
)
