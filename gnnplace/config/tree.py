"""The tree of a run's knobs: names, types, defaults and meanings, read off the dataclasses; `--knobs` prints it.

`policy.kind` names the policy and `algorithm.kind` the learning algorithm; the other knobs under both come from their
dataclasses.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from gnnplace.config.algorithms import ALGORITHMS, AlgorithmConfig
from gnnplace.config.run import RunConfig
from gnnplace.formats.strict_json import shown
from gnnplace.policies.protocol import PolicyConfig
from gnnplace.policies.registry import POLICIES

Config = TypeVar("Config")

FREE = "trainer"  # flags of the Trainer, which Lightning checks


class Kinds(NamedTuple):
    """The dataclasses that a run's configuration chooses by `kind`."""

    policy: type[PolicyConfig]
    algorithm: type[AlgorithmConfig]


class Knob(NamedTuple):
    """One value of a configuration, or a group of them (`hint` is then a dataclass)."""

    name: str  # dotted, such as training.optimizer.lr
    hint: Any
    default: Any
    meaning: str

    @property
    def group(self) -> bool:
        return dataclasses.is_dataclass(self.hint)

    @property
    def text(self) -> bool:
        """Whether each value is a text or null, which a command line gives as it is."""
        return all(part in (str, type(None)) or isinstance(part, str) for part in self._parts())

    @property
    def optional(self) -> bool:
        """Whether null is a value."""
        return type(None) in self._parts()

    @property
    def yes_or_no(self) -> bool:
        """Whether true and false are values."""
        return bool in self._parts() or self.hint is Any

    def _parts(self) -> tuple[Any, ...]:
        """The types, or the values, of which it takes one."""
        return get_args(self.hint) if get_origin(self.hint) is not tuple and get_args(self.hint) else (self.hint,)


def kinds_of(document: Mapping[str, Any]) -> Kinds:
    """The policy and the algorithm of a configuration as plain data; REINFORCE unless it names one.

    Raises ValueError for names that are none.
    """
    policy, algorithm = (_kind(document.get(group)) for group in Kinds._fields)
    return Kinds(
        chosen(policy, POLICIES, "policy"),
        chosen("reinforce" if algorithm is None else algorithm, ALGORITHMS, "algorithm"),
    )


def _kind(document: object) -> object:
    return document.get("kind") if isinstance(document, Mapping) else None


def chosen(kind: object, table: Mapping[str, type[Config]], group: str) -> type[Config]:
    """The dataclass of this name. Raises ValueError for a name that is none."""
    if not isinstance(kind, str) or kind not in table:
        raise ValueError(f"{group}.kind: {shown(kind)} is none of {', '.join(table)}")
    return table[kind]


def knobs(kinds: Kinds) -> dict[str, Knob]:
    """All knobs and groups of a run, by their dotted names."""
    return {knob.name: knob for knob in _knobs(RunConfig, kinds._asdict())}


def _knobs(config: type, choices: Mapping[str, type], prefix: str = "") -> Iterator[Knob]:
    hints, meanings = {**get_type_hints(config), **choices}, _meanings(config)
    for field in dataclasses.fields(config):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        knob = Knob(prefix + field.name, hints[field.name], default, meanings.get(field.name, ""))
        yield knob
        if knob.group:
            yield from _knobs(knob.hint, {}, f"{knob.name}.")


def _meanings(config: type) -> dict[str, str]:
    """The meaning of each knob, from `Args:` of a dataclass's docstring."""
    names, meanings, name = {field.name for field in dataclasses.fields(config)}, dict[str, str](), None
    for line in map(str.strip, (config.__doc__ or "").splitlines()):
        first, _, rest = line.partition(": ")
        if first in names:
            name, meanings[first] = first, rest
        elif name is not None:
            meanings[name] = f"{meanings[name]} {line}".strip()
    return meanings


def check_names(names: Iterable[str], kinds: Kinds) -> None:
    """Raises ValueError for an unknown name, and names the nearest knob."""
    every = knobs(kinds)
    for name in names:
        if name not in every and not name.startswith(f"{FREE}."):
            raise ValueError(f"{name!r} is no knob; the nearest is {difflib.get_close_matches(name, every, 1, 0)[0]!r}")


def check(document: Mapping[str, Any], kinds: Kinds) -> None:
    """Raises ValueError for an unknown name, and for true or false where a knob takes a number or a text.

    Pydantic would convert true and false.
    """
    values, every = dict(_values(document)), knobs(kinds)
    check_names(values, kinds)
    for name, value in values.items():
        if isinstance(value, bool) and name in every and not every[name].yes_or_no:
            raise ValueError(f"{name}: {value} is no {_values_of(every[name].hint)}")


def _values(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values and groups of a configuration as plain data, by their dotted names."""
    for key, value in document.items():
        yield f"{prefix}{key}", value
        if isinstance(value, Mapping):
            yield from _values(value, f"{prefix}{key}.")


def knobs_help() -> str:
    """Every knob with its values, default and meaning: those of a run, then those of each algorithm and policy."""
    (first, *_), (algorithm, *_) = POLICIES.values(), ALGORITHMS.values()
    every = knobs(Kinds(first, algorithm)).values()
    parts = [_explained("A run", [knob for knob in every if knob.name.partition(".")[0] not in Kinds._fields])]
    tables: dict[str, Iterable[type]] = {"algorithm": ALGORITHMS.values(), "policy": POLICIES.values()}
    for group, configs in tables.items():
        for config in configs:
            title = (config.__doc__ or config.__name__).splitlines()[0]
            parts.append(_explained(title, _knobs(config, {}, f"{group}.")))
    return "\n".join(parts)


def _explained(title: str, every: Iterable[Knob]) -> str:
    lines = [title]
    for knob in every:
        values = "" if knob.group else f" {_values_of(knob.hint)} (default: {_default(knob.default)})"
        lines.append(f"  --{knob.name}{values}")
        lines += textwrap.wrap(knob.meaning, 112, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join([*lines, ""])


def _values_of(hint: Any) -> str:
    """A type as users of YAML know it: `int`, `[str, ...]`, `paper|gnn`, `int|null`."""
    parts = get_args(hint)
    if hint in (Any, ...):
        return "..."
    if get_origin(hint) is Literal:
        return "|".join(map(str, parts))
    if get_origin(hint) is tuple:
        return f"[{', '.join(map(_values_of, parts))}]"
    if get_origin(hint) is dict:
        return "{name: value, ...}"
    return "|".join(map(_values_of, parts)) if parts else "null" if hint is type(None) else hint.__name__


def _default(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
