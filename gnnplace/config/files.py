"""Configurations from YAML files and command lines, checked by pydantic.

The command line wins over the file, and the file over the defaults. A run learns from the problems that the command
line names, and from those of the file only if the command line names none.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gnnplace import package_data
from gnnplace.complaints import UsageError, one_line
from gnnplace.config import strict_yaml, tree
from gnnplace.config.algorithms import ALGORITHMS, AlgorithmConfig
from gnnplace.config.run import RunConfig
from gnnplace.formats import strict_json
from gnnplace.policies.protocol import PolicyConfig
from gnnplace.policies.registry import POLICIES

Config = TypeVar("Config")

DEFAULT_POLICY, DEFAULT_SETTINGS = "hierarchical", "tuned"
CHOOSES = {"problems": "problems", "corpus": "corpus.splits"}  # the option that chooses problems by each of them
# sizes and costs belong to the problems of the file
NOTHING: Mapping[str, Any] = {"problems": [], "corpus": {}, "dims": [], "costs": []}


def read_config(path: Path, overrides: Sequence[str] = (), encoder: str | None = None) -> RunConfig:
    """The configuration of a YAML file under the options of a command line (`--training.updates 10`).

    `encoder` sets the knobs of the policy that make up an encoder of this name. Raises ValueError for the file and
    UsageError for the command line, in one line that names the value, the rule and the place.
    """
    return _overridden(strict_yaml.read(path), str(path), overrides, encoder)


def read_settings(
    policy: str = DEFAULT_POLICY, settings: str | None = None, overrides: Sequence[str] = (), encoder: str | None = None
) -> RunConfig:
    """The configuration of a policy's settings ("published", "tuned"): tuned ones unless named.

    A policy without a file starts from the defaults.

    Raises UsageError for a policy or settings that are not there, too.
    """
    if policy not in POLICIES:
        raise UsageError(f"--policy: {strict_json.unknown('policy', policy, tuple(POLICIES))}")
    if settings is None and not _folder(policy).is_dir():
        return _overridden({"policy": {"kind": policy}, "name": policy}, policy, overrides, encoder)
    path = shipped(policy, settings or DEFAULT_SETTINGS)
    if not path.is_file():
        shipped_names = ", ".join(sorted(file.stem for file in _folder(policy).glob("*.yaml"))) or "none"
        raise UsageError(f"--settings: {policy} has no {settings!r} settings; it has {shipped_names}")
    return read_config(path, overrides, encoder)


def shipped(policy: str = DEFAULT_POLICY, settings: str = DEFAULT_SETTINGS) -> Path:
    """The path of the YAML file of a policy's settings, which may not exist."""
    return _folder(policy) / f"{settings}.yaml"


def _folder(policy: str) -> Path:
    return package_data.folder("configs") / policy


def from_document(document: Mapping[str, Any], place: str) -> RunConfig:
    """The configuration of plain data, as `to_document` gives it. Raises ValueError that begins with `place`."""
    try:
        kinds = tree.kinds_of(document)
        tree.check(document, kinds)
        choices = {group: _built(config, document.get(group, {}), group) for group, config in kinds._asdict().items()}
        return _built(RunConfig, {**document, **choices})
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def policy_from_document(document: Mapping[str, Any], place: str) -> PolicyConfig:
    """The knobs of a policy from plain data, of this version or an earlier one.

    Raises ValueError that begins with `place`.
    """
    try:
        kinds = tree.kinds_of({"policy": document})
        today = kinds.policy.migrated(document)
        tree.check({"policy": today}, kinds)
        return _built(kinds.policy, today, "policy")
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def to_document(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain data, every knob included."""
    return _plain(dataclasses.asdict(config))


def to_yaml(config: RunConfig) -> str:
    """The configuration as YAML, every knob included; reading it gives an equal one."""
    return yaml.safe_dump(to_document(config), sort_keys=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _built(config: type[Config], document: object, group: str = "") -> Config:
    """A dataclass of knobs from plain data. Raises ValueError: each wrong value with its place and rule."""
    try:
        return TypeAdapter(config).validate_python(document)
    except ValidationError as error:
        raise ValueError(one_line(_complaint(part, group) for part in error.errors(include_url=False))) from None


def _complaint(error: ErrorDetails, group: str) -> str:
    """The name of the knob, then what is wrong; checks of dataclasses may state the name themselves."""
    place = strict_json.place([part for part in (group, *error["loc"]) if part != ""])
    if error["type"] == "value_error":
        rule = str(error["ctx"]["error"])
        return rule if not (group or error["loc"]) or rule.startswith(place) else f"{place}.{rule}"
    rule = "a map of knobs is due" if error["type"] == "dataclass_type" else error["msg"].replace("tuple", "list")
    return f"{place}: {strict_json.shown(error['input'])}: {rule[0].lower()}{rule[1:]}"


def _overridden(document: Mapping[str, Any], place: str, words: Sequence[str], encoder: str | None) -> RunConfig:
    """The configuration of a document under the words of a command line."""
    config = from_document(document, place)
    words = [*_encoder(config.policy, encoder), *words]
    if not words:
        return config
    try:
        options = _options(words)
        policy, algorithm = (dict(options).get(f"{group}.kind") for group in tree.Kinds._fields)
        if policy not in (None, config.policy.kind):
            raise ValueError(f"policy.kind: {place} is of {config.policy.kind!r}; choose another policy with --policy")
        if algorithm not in (None, config.algorithm.kind):
            other = tree.chosen(algorithm, ALGORITHMS, "algorithm")
            document = {**document, "algorithm": _shared(config.algorithm, other)}
        kinds = tree.kinds_of(document)
        tree.check_names(dict(options), kinds)
        document, knobs = without_what_is_replaced(document, dict(options)), tree.knobs(kinds)
        for name, text in options:
            raw = name in knobs and knobs[name].text and not (text == "null" and knobs[name].optional)
            document = _with(document, name.split("."), text if raw else strict_yaml.value(text))
    except ValueError as error:
        raise UsageError(f"command line: {error}") from error
    try:
        return from_document(document, "command line")
    except ValueError as error:
        raise UsageError(str(error)) from error


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """The options on a command line with their values: `--seed 3`, `--seed=3`."""
    options, rest = [], iter(words)
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise ValueError(f"{strict_json.shown(word)}: an option begins with --")
        following = value if equals else next(rest, None)
        if following is None:
            raise ValueError(f"--{name}: a value is due")
        options.append((name, following))
    return options


def _with(document: Mapping[str, Any], name: Sequence[str], value: Any) -> dict[str, Any]:
    """A configuration as plain data with another value; a map changes only the knobs that it names."""
    first, *rest = name
    group = document.get(first)
    if rest:
        value = _with(group if isinstance(group, Mapping) else {}, rest, value)
    elif isinstance(value, Mapping) and isinstance(group, Mapping):
        value = functools.reduce(lambda whole, key: _with(whole, [key], value[key]), value, group)
    return {**document, first: value}


def without_what_is_replaced(document: Mapping[str, Any], options: Collection[str]) -> dict[str, Any]:
    """The document of a run under options: if `problems` or `corpus.splits` is given, the file's problems go.

    Other knobs of the corpus choose nothing by themselves: they stay as the file has them where `corpus.splits` is
    named.
    """
    kept = {name for name in NOTHING if CHOOSES.get(name, name) in options or name in options}
    return (
        dict(document)
        if kept.isdisjoint(CHOOSES)
        else {**document, **{name: NOTHING[name] for name in NOTHING.keys() - kept}}
    )


def _encoder(policy: PolicyConfig, encoder: str | None) -> list[str]:
    """The options that make up an encoder of a policy."""
    if encoder is None:
        return []
    if encoder not in policy.encoders:
        choice = f"it has {', '.join(policy.encoders)}" if policy.encoders else "it has no choice of encoder"
        raise UsageError(f"--encoder: {policy.kind} has no encoder {encoder!r}: {choice}")
    return [f"--policy.{knob}={value}" for knob, value in policy.encoders[encoder].items()]


def _shared(config: AlgorithmConfig, other: type[AlgorithmConfig]) -> dict[str, Any]:
    """The knobs of one algorithm that the other has as well."""
    names = {knob.name for knob in dataclasses.fields(other)} - {"kind"}
    return {"kind": other.kind} | {name: value for name, value in vars(config).items() if name in names}
