"""Configurations from YAML files and command lines (jsonargparse): nested overrides, `--print_config`, unknown keys refused.

`policy.kind` names the policy; the other keys under `policy` are those of its dataclass. The command line wins over the file,
and the file over the defaults.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from gnnplace import package_data
from gnnplace.config.run import RunConfig
from gnnplace.policies.protocol import PolicyConfig
from gnnplace.policies.registry import POLICIES


class UsageError(ValueError):
    """A command line that is wrong, as opposed to a file that is."""


def read_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The configuration of a YAML file under the overrides of a command line (`--training.updates 10`, `--policy.width=32`).

    `--print_config` prints the result and exits, `--help` explains every knob. Raises ValueError for the file and
    UsageError for the command line, in one line that names the value, the rule and the place.
    """
    document = _load(path)
    config = from_document(document, str(path))
    if not overrides:
        return config
    policy = _policy(_given_kind(overrides) or config.policy.kind, "command line", UsageError)
    _check_keys(_options(overrides), policy, "command line", UsageError)
    if policy is not type(config.policy):
        document = {**document, "policy": {"kind": policy.kind}}
    try:
        parser = _parser(policy)
        base = parser.parse_object(document)
        parser.set_defaults({key: value for key, value in vars(base.as_flat()).items() if key != "config"})
        return _build(parser, parser.parse_args(list(overrides)))
    except (ArgumentError, ValueError) as error:
        raise UsageError(f"command line: {_one_line(error)}") from error


def shipped(name: str | os.PathLike[str]) -> Path:
    """The YAML file of a configuration: one of ours by its name ("gnn", "paper"), or a file by its path."""
    path = package_data.folder("configs") / f"{os.fspath(name)}.yaml"
    return path if path.is_file() else Path(name)


def knobs_help() -> str:
    """Every knob of a run, with its meaning and default, for each policy."""
    return "\n\n".join(_parser(policy).format_help() for policy in POLICIES.values())


def from_document(document: Mapping[str, Any], place: str) -> RunConfig:
    """The configuration of plain data, as `to_document` gives it. Raises ValueError that begins with `place`."""
    policy = document.get("policy")
    kind = policy.get("kind") if isinstance(policy, Mapping) else None
    chosen = _policy(kind, place)
    _check_keys(_keys(document), chosen, place, ValueError)
    parser = _parser(chosen)
    try:
        return _build(parser, parser.parse_object(dict(document)))
    except (ArgumentError, ValueError) as error:
        raise ValueError(f"{place}: {_one_line(error)}") from error


def to_document(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain data, every knob included."""
    return yaml.safe_load(to_yaml(config))


def to_yaml(config: RunConfig) -> str:
    """The configuration as YAML, every knob included; reading it gives an equal one."""
    return yaml.safe_dump(_plain(dataclasses.asdict(config)), sort_keys=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _load(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {_reason(error)}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path}: {type(document).__name__} is not a map of knobs")
    return document


def _parser(policy: type[PolicyConfig]) -> ArgumentParser:
    parser = ArgumentParser(prog="gnnplace train", exit_on_error=False, description="Knobs of a training run; see configs/*.yaml.")
    parser.add_argument("--config", action="config", help="a complete YAML file of knobs")
    hints, meanings = get_type_hints(RunConfig) | {"policy": policy}, _meanings()
    for knob in dataclasses.fields(RunConfig):
        hint = hints[knob.name]
        if dataclasses.is_dataclass(hint):
            parser.add_class_arguments(hint, knob.name)
        else:
            parser.add_argument(f"--{knob.name}", type=hint, default=knob.default, help=meanings[knob.name])
    return parser


def _meanings() -> dict[str, str]:
    """What the docstring of a run's configuration says of each knob, as jsonargparse finds it for the nested ones."""
    lines = (line.strip().partition(": ") for line in (RunConfig.__doc__ or "").splitlines())
    return {knob: meaning for knob, colon, meaning in lines if colon}


def _build(parser: ArgumentParser, namespace: Any) -> RunConfig:
    built = vars(parser.instantiate(namespace))
    return RunConfig(**{knob.name: built[knob.name] for knob in dataclasses.fields(RunConfig)})


def _policy(kind: object, place: str, error: type[ValueError] = ValueError) -> type[PolicyConfig]:
    if kind not in POLICIES:
        raise error(f"{place}: policy.kind: {kind!r} is none of {', '.join(POLICIES)}")
    return POLICIES[str(kind)]


def _known(config: type, policy: type[PolicyConfig]) -> Iterator[str]:
    """The dotted names of all knobs and groups of knobs."""
    hints = get_type_hints(config) | ({"policy": policy} if config is RunConfig else {})
    for knob in dataclasses.fields(config):
        yield knob.name
        if dataclasses.is_dataclass(hints[knob.name]):
            yield from (f"{knob.name}.{name}" for name in _known(hints[knob.name], policy))


def _keys(document: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in document.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _options(arguments: Sequence[str]) -> Iterator[str]:
    skipped = ("help", "print_config")
    names = (argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--"))
    return (name for name in names if name not in skipped)


def _given_kind(arguments: Sequence[str]) -> str | None:
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name == "--policy.kind":
            return value if equals else following
    return None


def _check_keys(keys: Iterator[str], policy: type[PolicyConfig], place: str, error: type[ValueError]) -> None:
    known = list(_known(RunConfig, policy))
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0)[0]
            raise error(f"{place}: {key!r} is no knob; the nearest is {near!r}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else _one_line(error)
