"""Strict JSON: bytes to a checked pydantic model, or a ValueError of one line: the place, the value and the rule of all
that is wrong.

Refused before much is allocated: files over a limit of bytes. Refused besides what the model forbids: repeated keys,
NaN and Infinity, integers of hundreds of digits, text that is not Unicode, nesting beyond Python's recursion.
A place is written as in `ops[17].outputs[0].bytes`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Tag, ValidationError
from pydantic_core import ErrorDetails

from gnnplace.complaints import MOST, one_line
from gnnplace.isolation import regular_file

MAX_DIGITS = 30
MAX_SHOWN = 60
MOST_COMPARED = 200  # characters of a name, with those that it may have meant
MAX_DEPTH = 30
TOO_DEEP = "document: nested too deeply to be one of ours"

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound="Document")
Source = str | os.PathLike[str] | bytes


class Document(BaseModel):
    """The base of every object in our JSON formats: unknown keys are refused and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def complaints_between(cls, value: object) -> Iterator[str]:
        """What is wrong between the fields of a parsed value which is no such document, as far as they can be read."""
        return iter(())


class _Refused:
    """Stands in a parsed document for what JSON libraries accept and we refuse."""

    def __init__(self, value: str, rule: str) -> None:
        self.value, self.rule = value, rule


def _whole(value: object) -> object:
    """An integral float (1e12) as its integer; anything else unchanged, for the model to judge."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)  # for an integer that may be written as 1e12

_TAGS = ("<one>", "<map>")
MAP, ONE = Tag(_TAGS[1]), Tag(_TAGS[0])


def one_or_map(value: object) -> str:
    """The discriminator of a union of a value (tagged `ONE`) and a map
    (`MAP`), so that an error is about the one that was meant.
    """
    return _TAGS[isinstance(value, dict)]


def read(source: Source, model: type[ModelT], build: Callable[[ModelT], T], max_bytes: int) -> T:
    """What `build` makes of the document in a file (a path) or in bytes.

    Raises ValueError (one line, the path first) for a bad document, OSError for an unreadable file.
    """
    if isinstance(source, bytes):
        return build(parse(source, model, max_bytes))
    try:
        return build(parse(regular_file.read(os.fspath(source), max_bytes), model, max_bytes))
    except ValueError as error:
        raise ValueError(f"{os.fspath(source)}: {error}") from error


def read_any(path: str | os.PathLike[str], builders: Mapping[str, Callable[[dict[str, Any]], T]], max_bytes: int) -> T:
    """What the builder of its `format` makes of the document in a file.

    Raises ValueError (one line, the path first), OSError.
    """
    try:
        document = loads(regular_file.read(os.fspath(path), max_bytes))
        name = document.get("format") if isinstance(document, dict) else None
        if not isinstance(document, dict) or name not in builders:
            raise ValueError(f"format: {shown(name)} is none of {', '.join(builders)}")
        return builders[str(name)](document)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def parse(data: bytes, model: type[ModelT], max_bytes: int) -> ModelT:
    """The document in `data`, checked by `model`."""
    if len(data) > max_bytes:
        raise ValueError(f"longer than the {max_bytes} bytes that this kind of document may have")
    return check(loads(data), model)


def check(document: object, model: type[ModelT]) -> ModelT:
    """A parsed document, checked by `model`."""
    _check_version(document, model)
    return validate(document, model)


def validate(value: object, model: type[ModelT]) -> ModelT:
    """A parsed value as `model`. Raises ValueError: one line with place, value and rule of everything that is wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        lines = [_explain(each, model) for each in errors[:MOST]]
        raise ValueError(one_line([*lines, *model.complaints_between(value)], len(errors) - len(lines))) from None


def place(location: Sequence[object]) -> str:
    """`("ops", 17, "bytes")` -> `ops[17].bytes`."""
    text = ""
    for part in location:
        if part in _TAGS:
            continue
        plain = isinstance(part, str) and len(part) <= MAX_SHOWN and part.isidentifier()
        text += (f".{part}" if text else str(part)) if plain else f"[{shown(part)}]"
    return text or "document"


def shown(value: object) -> str:
    """A value as an error message shows it: one line, not too long."""
    text = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def unknown(what: str, name: object, known: Sequence[str]) -> str:
    """`'lefd' is no op: nearest is 'left'`; where there are few, all of them."""
    near = difflib.get_close_matches(str(name)[:MOST_COMPARED], known[:10_000], n=1)
    choices = f"choose from {', '.join(known)}" if len(known) <= 20 else f"there are {len(known)}"
    return f"{shown(name)} is no {what}; {f'nearest is {near[0]!r}; ' if near else ''}{choices}"


class _Hooks:
    """What the JSON parser calls; `refused` tells that the parsed document holds a `_Refused`."""

    def __init__(self, finite: bool) -> None:
        self.refused, self.finite = False, finite

    def pairs(self, items: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(items)
        if len(document) < len(items):
            counts = Counter(key for key, _ in items)
            repeated = next(key for key, count in counts.items() if count > 1)
            document[repeated] = self._refuse(shown(repeated), "a key may stand once in an object")
        return document

    def constant(self, text: str) -> float | _Refused:
        return self._refuse(text, "a number has to be finite") if self.finite else float(text)

    def integer(self, text: str) -> int | _Refused:
        return int(text) if len(text) <= MAX_DIGITS else self._refuse(shown(text), "an integer has to fit 64 bits")

    def _refuse(self, value: str, rule: str) -> _Refused:
        self.refused = True
        return _Refused(value, rule)


def loads(data: bytes, finite: bool = True) -> object:
    """The parsed document, which no model has checked.

    Without `finite`, NaN and Infinity are numbers, too, and nesting is checked here.
    """
    hooks = _Hooks(finite)
    try:
        document = _decode(data.decode("utf-8"), hooks)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start}: not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if hooks.refused or not finite or re.search(rb"\\u[dD][89a-fA-F]", data):
        _refuse(document)
    return document


def _decode(text: str, hooks: _Hooks) -> object:
    try:
        return json.loads(text, object_pairs_hook=hooks.pairs, parse_constant=hooks.constant)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of thousands of digits: parse again, slowly, to say where
        return json.loads(text, object_pairs_hook=hooks.pairs, parse_constant=hooks.constant, parse_int=hooks.integer)


def _refuse(document: object) -> None:
    for location, value in _walk(document, ()):
        if isinstance(value, _Refused):
            raise ValueError(f"{place(location)}: {value.value}: {value.rule}")
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{place(location)}: {shown(value)}: a lone surrogate is not Unicode text")


def _walk(value: object, location: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], object]]:
    if len(location) > MAX_DEPTH:
        raise ValueError(TOO_DEEP)
    yield location, value
    if isinstance(value, dict):
        for key, child in value.items():
            yield (*location, key), key
            yield from _walk(child, (*location, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk(child, (*location, index))


def _check_version(document: object, model: type[Document]) -> None:
    """The format and the version first, where the model has them: nothing
    else of a document that we don't know makes sense.
    """
    if not isinstance(document, dict):
        raise ValueError(f"document: {shown(document)}: an object is due")
    for key in ("format", "version"):
        if key not in model.model_fields:  # a format of others
            continue
        default = model.model_fields[key].default
        if key not in document:
            raise ValueError(f"{key}: is missing; {shown(default)} is due")
        value = document[key]
        if isinstance(value, bool) or value != default:
            raise ValueError(f"{key}: {shown(value)} is not known; this reader knows {shown(default)}")


def _explain(error: ErrorDetails, model: type[Document]) -> str:
    where, rule = place(error["loc"]), error["msg"]
    if error["type"] == "missing":
        return f"{where}: is missing"
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key{_nearest(str(error['loc'][-1]), model)}"
    if error["type"] == "value_error":
        return f"{where}: {error['ctx']['error']}"
    return f"{where}: {shown(error['input'])}: {rule[0].lower()}{rule[1:]}"


def _nearest(key: str, model: type[Document]) -> str:
    schema = model.model_json_schema()
    keys = [name for part in (schema, *schema.get("$defs", {}).values()) for name in part.get("properties", {})]
    near = difflib.get_close_matches(key[:MOST_COMPARED], keys, n=1)
    return f"; nearest is {near[0]!r}" if near else ""
