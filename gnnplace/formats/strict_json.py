"""Strict JSON: bytes to a checked pydantic model, or a one-line ValueError with place, value and rule of every error.

A file over the limit of bytes is refused before much is allocated. Besides what the model forbids, the reader refuses
repeated keys, NaN and Infinity, integers of hundreds of digits, text that is not Unicode, and nesting beyond Python's
recursion. A place is written as in `ops[17].outputs[0].bytes`.
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
MOST_COMPARED = 200  # characters of an unknown name that are compared with valid names
MAX_DEPTH = 30
TOO_DEEP = "document: nested too deeply to be one of ours"

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound="Document")
Source = str | os.PathLike[str] | bytes


class Document(BaseModel):
    """The base of every object in our JSON formats: it refuses unknown keys and converts no values."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def complaints_between(cls, value: object) -> Iterator[str]:
        """What is wrong between several fields of an invalid parsed value, as far as they can be read."""
        return iter(())


class _Refused:
    """A placeholder in a parsed document for a value that JSON libraries accept and we refuse."""

    def __init__(self, value: str, rule: str) -> None:
        self.value, self.rule = value, rule


def _whole(value: object) -> object:
    """An integral float (1e12) as its integer; anything else unchanged, for the model to judge."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)  # for an integer that may be written as 1e12

_TAGS = ("<one>", "<map>")
MAP, ONE = Tag(_TAGS[1]), Tag(_TAGS[0])


def one_or_map(value: object) -> str:
    """The discriminator of a union of a value (tagged `ONE`) and a map (`MAP`): an error is about the one it was."""
    return _TAGS[isinstance(value, dict)]


def read(source: Source, model: type[ModelT], build: Callable[[ModelT], T], max_bytes: int) -> T:
    """The document in a file (a path) or in bytes, converted by `build`.

    Raises ValueError (one line, the path first) for an invalid document, OSError for an unreadable file.
    """
    if isinstance(source, bytes):
        return build(parse(source, model, max_bytes))
    try:
        return build(parse(regular_file.read(os.fspath(source), max_bytes), model, max_bytes))
    except ValueError as error:
        raise ValueError(f"{os.fspath(source)}: {error}") from error


def read_any(path: str | os.PathLike[str], builders: Mapping[str, Callable[[dict[str, Any]], T]], max_bytes: int) -> T:
    """The document in a file, converted by the builder for its `format`.

    Raises ValueError (one line, the path first) and OSError.
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
    """A parsed value as `model`. Raises ValueError: one line with place, value and rule of every error."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        lines = [_explain(details, model) for details in errors[:MOST]]
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
    """The text of a value for an error message: one line of limited length."""
    text = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def unknown(what: str, name: object, valid: Sequence[str]) -> str:
    """`'lefd' is no op; nearest is 'left'; ...`, then all valid names if they are few, else their number."""
    near = difflib.get_close_matches(str(name)[:MOST_COMPARED], valid[:10_000], n=1)
    choices = f"choose from {', '.join(valid)}" if len(valid) <= 20 else f"there are {len(valid)}"
    return f"{shown(name)} is no {what}; {f'nearest is {near[0]!r}; ' if near else ''}{choices}"


class _Hooks:
    """The hooks of the JSON parser; `refused` is True once the parsed document holds a `_Refused`."""

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
    """The parsed document, not yet checked by a model.

    Without `finite`, NaN and Infinity are numbers as well, and nesting is checked here.
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
    except ValueError:  # an integer of thousands of digits: parse again, slowly, to find its place
        return json.loads(text, object_pairs_hook=hooks.pairs, parse_constant=hooks.constant, parse_int=hooks.integer)


def _refuse(document: object) -> None:
    """Raises ValueError for the first refused value, lone surrogate or too deep nesting in a parsed document."""
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
    """Raises ValueError for another format or version, before anything else of the document is checked.

    Models of others' formats have neither field.
    """
    if not isinstance(document, dict):
        raise ValueError(f"document: {shown(document)}: an object is due")
    for key in ("format", "version"):
        if key not in model.model_fields:
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
