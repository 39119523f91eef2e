"""Configurations from YAML files and command lines (jsonargparse): nested overrides, `--print_config`, unknown keys
refused.

`policy.kind` names the policy and `algorithm.kind` the learning algorithm; the other keys under both are those of their
dataclasses. The command line wins over the file, and the file over the defaults. What a run learns from is what the
command line names, and that alone, whatever the file of its settings names.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from gnnplace import package_data
from gnnplace.complaints import UsageError
from gnnplace.config import strict_yaml
from gnnplace.config.algorithms import ALGORITHMS, AlgorithmConfig
from gnnplace.config.run import RunConfig
from gnnplace.formats import strict_json
from gnnplace.policies.protocol import PolicyConfig
from gnnplace.policies.registry import POLICIES

Kind = TypeVar("Kind")

DEFAULT_POLICY, DEFAULT_SETTINGS = "hierarchical", "tuned"
FREE = "trainer"  # a map of the Trainer's flags, which Lightning knows
CHOOSES = {"problems": "problems", "corpus": "corpus.splits"}  # the option that chooses problems by each of them
# sizes and costs are those of its problems
NOTHING: Mapping[str, Any] = {"problems": [], "corpus": {}, "dims": [], "costs": []}


class Kinds(NamedTuple):
    """The dataclasses of what a run's configuration chooses by `kind`."""

    policy: type[PolicyConfig]
    algorithm: type[AlgorithmConfig]


def read_config(path: Path, overrides: Sequence[str] = (), encoder: str | None = None) -> RunConfig:
    """The configuration of a YAML file under the overrides of a command line (`--training.updates 10`,
    `--policy.width=32`).

    `encoder` sets the knobs of the policy that make up an encoder of this name. `--print_config` prints the result and
    exits. Raises ValueError for the file and UsageError for the command line, in one line that names the value, the
    rule and the place.
    """
    return _overridden(strict_yaml.read(path), str(path), overrides, encoder)


def read_settings(
    policy: str = DEFAULT_POLICY, settings: str | None = None, overrides: Sequence[str] = (), encoder: str | None = None
) -> RunConfig:
    """The same of a policy's settings ("published", "tuned"): tuned ones unless named. A policy without a file starts
    from the defaults.

    Raises UsageError for a policy or settings that are not there, too.
    """
    if policy not in POLICIES:
        raise UsageError(f"--policy: {strict_json.unknown('policy', policy, tuple(POLICIES))}")
    if settings is None and not _folder(policy).is_dir():
        return _overridden({"policy": {"kind": policy}, "name": policy}, policy, overrides, encoder)
    path = shipped(policy, settings or DEFAULT_SETTINGS)
    if not path.is_file():
        there = ", ".join(sorted(each.stem for each in _folder(policy).glob("*.yaml"))) or "none"
        raise UsageError(f"--settings: {policy} has no {settings!r} settings; it has {there}")
    return read_config(path, overrides, encoder)


def shipped(policy: str = DEFAULT_POLICY, settings: str = DEFAULT_SETTINGS) -> Path:
    """Where the YAML file of a policy's settings lies, or would lie."""
    return _folder(policy) / f"{settings}.yaml"


def _folder(policy: str) -> Path:
    return package_data.folder("configs") / policy


def _overridden(document: Mapping[str, Any], place: str, overrides: Sequence[str], encoder: str | None) -> RunConfig:
    config = from_document(document, place)
    words = [*_encoder(config.policy, encoder), *overrides]
    if not words:
        return config
    if _given(words, "policy.kind") not in (None, config.policy.kind):
        raise UsageError(
            f"command line: policy.kind: {place} is of {config.policy.kind!r}; choose another policy with --policy"
        )
    algorithm = _given(words, "algorithm.kind") or config.algorithm.kind
    kinds = Kinds(type(config.policy), _chosen(algorithm, ALGORITHMS, "algorithm", "command line", UsageError))
    _check_keys(_options(words), kinds, "command line", UsageError)
    if kinds.algorithm is not type(config.algorithm):
        document = {**document, "algorithm": _shared(config.algorithm, kinds.algorithm)}
    document = without_what_is_replaced(document, list(_options(words)))
    try:
        strict_yaml.check_texts([word.partition("=")[2] if word.startswith("--") else word for word in words])
        parser = _parser(kinds)
        base = parser.parse_object(dict(document))
        parser.set_defaults({key: value for key, value in vars(base.as_flat()).items() if key != "config"})
        return _build(parser, parser.parse_args(words))
    except (ArgumentError, ValueError) as error:
        raise UsageError(f"command line: {' '.join(str(error).split())}") from error


def without_what_is_replaced(document: Mapping[str, Any], options: Collection[str]) -> dict[str, Any]:
    """The document of a run under options such as `problems` and `corpus.splits`: of what it learns from only what they
    name.

    Other knobs of the corpus choose nothing by themselves: they stay as the file has them where `corpus.splits` is
    named.
    """
    kept = {name for name in NOTHING if CHOOSES.get(name, name) in options or name in options}
    return (
        dict(document)
        if kept.isdisjoint(CHOOSES)
        else {**document, **{name: NOTHING[name] for name in NOTHING.keys() - kept}}
    )


def knobs_help() -> str:
    """Every knob of a run, with its meaning and default, for each policy and algorithm."""
    pairs = [(policy, ALGORITHMS["ppo"]) for policy in POLICIES.values()]
    return "\n\n".join(_parser(Kinds(*pair)).format_help() for pair in pairs)


def from_document(document: Mapping[str, Any], place: str) -> RunConfig:
    """The configuration of plain data, as `to_document` gives it. Raises ValueError that begins with `place`."""
    kinds = Kinds(
        _chosen(_kind(document.get("policy")), POLICIES, "policy", place),
        _chosen(_kind(document.get("algorithm")) or "reinforce", ALGORITHMS, "algorithm", place),
    )
    _check_keys(_keys(document), kinds, place, ValueError)
    parser = _parser(kinds)
    try:
        strict_yaml.check_texts(dict(document))
        _check_forms(document, RunConfig, kinds)
        return _build(parser, parser.parse_object(dict(document)))
    except (ArgumentError, ValueError) as error:
        raise ValueError(f"{place}: {' '.join(str(error).split())}") from error


def policy_from_document(document: Mapping[str, Any], place: str) -> PolicyConfig:
    """The knobs of a policy from plain data, of this version or an earlier one.

    Raises ValueError that begins with `place`.
    """
    chosen = _chosen(_kind(document), POLICIES, "policy", place)
    try:
        today = chosen.migrated(document)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return from_document({"policy": dict(today), "problems": [["graph", "cluster"]]}, place).policy


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


def _parser(kinds: Kinds) -> ArgumentParser:
    parser = ArgumentParser(
        prog="gnnplace train", exit_on_error=False, description="Knobs of a training run; see configs/."
    )
    parser.add_argument("--config", action="config", help="a complete YAML file of knobs")
    hints, meanings = get_type_hints(RunConfig) | kinds._asdict(), _meanings()
    for knob in dataclasses.fields(RunConfig):
        hint = hints[knob.name]
        if dataclasses.is_dataclass(hint):
            parser.add_class_arguments(hint, knob.name)
        else:
            default = {} if knob.name == FREE else knob.default
            parser.add_argument(f"--{knob.name}", type=hint, default=default, help=meanings[knob.name])
    return parser


def _meanings() -> dict[str, str]:
    """What the docstring of a run's configuration says of each knob, as jsonargparse finds it for the nested ones."""
    knobs, meanings, knob = {knob.name for knob in dataclasses.fields(RunConfig)}, dict[str, str](), None
    for line in map(str.strip, (RunConfig.__doc__ or "").splitlines()):
        first, _, rest = line.partition(": ")
        if first in knobs:
            knob, meanings[first] = first, rest
        elif knob is not None:
            meanings[knob] = f"{meanings[knob]} {line}".strip()
    return meanings


def _build(parser: ArgumentParser, namespace: Any) -> RunConfig:
    built = vars(parser.instantiate(namespace))
    return RunConfig(**{knob.name: built[knob.name] for knob in dataclasses.fields(RunConfig)})


def _chosen(
    kind: object, table: Mapping[str, type[Kind]], what: str, place: str, error: type[ValueError] = ValueError
) -> type[Kind]:
    if not isinstance(kind, str) or kind not in table:
        raise error(f"{place}: {what}.kind: {strict_json.shown(kind)} is none of {', '.join(table)}")
    return table[kind]


def _kind(document: object) -> object:
    return document.get("kind") if isinstance(document, Mapping) else None


def _encoder(policy: PolicyConfig, encoder: str | None) -> list[str]:
    """The options that make up an encoder of a policy."""
    if encoder is None:
        return []
    if encoder not in policy.encoders:
        choice = f"it has {', '.join(policy.encoders)}" if policy.encoders else "it has no choice of encoder"
        raise UsageError(f"--encoder: {policy.kind} has no encoder {encoder!r}: {choice}")
    return [f"--policy.{knob}={value}" for knob, value in policy.encoders[encoder].items()]


def _shared(config: AlgorithmConfig, other: type[AlgorithmConfig]) -> dict[str, Any]:
    """The knobs of one algorithm that another has, too."""
    names = {knob.name for knob in dataclasses.fields(other)} - {"kind"}
    return {"kind": other.kind} | {name: value for name, value in vars(config).items() if name in names}


def _known(config: type, kinds: Kinds) -> Iterator[str]:
    """The dotted names of all knobs and groups of knobs."""
    hints = get_type_hints(config) | (kinds._asdict() if config is RunConfig else {})
    for knob in dataclasses.fields(config):
        yield knob.name
        if dataclasses.is_dataclass(hints[knob.name]):
            yield from (f"{knob.name}.{name}" for name in _known(hints[knob.name], kinds))


def _keys(document: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in document.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _options(arguments: Sequence[str]) -> Iterator[str]:
    skipped = ("help", "print_config")
    names = (argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--"))
    return (name for name in names if name not in skipped)


def _given(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option on the command line."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name == f"--{option}":
            return value if equals else following
    return None


def _check_keys(keys: Iterator[str], kinds: Kinds, place: str, error: type[ValueError]) -> None:
    knobs = list(_known(RunConfig, kinds))
    for key in keys:
        if key not in knobs and not key.startswith(f"{FREE}."):
            near = difflib.get_close_matches(key, knobs, n=1, cutoff=0)[0]
            raise error(f"{place}: {key!r} is no knob; the nearest is {near!r}")


def _check_forms(document: Mapping[str, Any], config: type, kinds: Kinds, prefix: str = "") -> None:
    """Raises ValueError for a knob of null that takes none, and for a group
    of knobs that is no map: jsonargparse hands both on.
    """
    hints = get_type_hints(config) | (kinds._asdict() if config is RunConfig else {})
    for key, value in document.items():
        hint = hints.get(key)
        if value is None and hint is not None and type(None) not in get_args(hint):
            raise ValueError(f"{prefix}{key}: null is no value of this knob")
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ValueError(f"{prefix}{key}: {strict_json.shown(value)}: a map of knobs is due")
            _check_forms(value, hint, kinds, f"{prefix}{key}.")
