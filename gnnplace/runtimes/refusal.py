"""Why a target refuses a placement: it can't express it, the graph is of another framework, or its trial failed.

A refusal advises the options of `gnnplace place` that keep together what the target can't separate.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from gnnplace.choices import Granularity

LISTED_NAMES = 3  # in one message
MOST_CHARACTERS = 200  # of another program's error
ONE_DEVICE = "--devices with one device would"


class UnsayableError(ValueError):
    """A placement that a target can't express. The message names the ops or modules, and what to do instead."""


class Fault(NamedTuple):
    """An error of a trial, with the path of the module whose own code raised it ("" for the model itself).

    `always`: one device raises it, too.
    """

    what: str
    where: str
    always: bool = False


class TrialResult(NamedTuple):
    """The result of a trial: its `fault`, or why there was no trial (`untried`); neither if it succeeded.

    `undivided` are the stages of a pipeline that can't send gradients of inputs before they compute those of weights.
    """

    fault: Fault | None = None
    untried: str | None = None
    undivided: tuple[int, ...] = ()


NOT_AT_HAND = TrialResult(untried="whose module is not at hand")


def error_line(error: Exception) -> str:
    """Another program's error on one line, shortened.

    >>> error_line(ValueError("no such\\n  device"))
    'ValueError: no such device'
    """
    return " ".join(f"{type(error).__name__}: {error}".split())[:MOST_CHARACTERS]


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return ", ".join(names[:LISTED_NAMES]) + more


def together(module: str, other: str) -> str:
    """Advice to keep the innermost module around two modules on one device.

    >>> together("layers.0.input", "layers.1.hidden"), together("wte", "head")
    ('place with --keep-whole layers', 'no granularity would do, --devices with one device would')
    """
    shared = around(module, other)
    return f"place with --keep-whole {'.'.join(shared)}" if shared else f"no granularity would do, {ONE_DEVICE}"


def around(module: str, other: str) -> list[str]:
    """The path, in parts, of the innermost module that contains two modules."""
    pairs = zip(module.split("."), other.split("."), strict=False)
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def beside(module: str, other: str) -> str:
    """Advice to keep two modules, and no others, on one device.

    >>> beside("wte", "lm_head")
    'place with --granularity module --keep-whole wte+lm_head'
    """
    return f"place with --granularity module --keep-whole {shlex.quote(f'{module}+{other}')}"


def whole(paths: Iterable[str], granularity: Granularity = "module") -> str:
    """Advice to keep each module whole, and with a numbered module all of its number's siblings.

    >>> whole(["blocks.0.mlp", "blocks.3", "encoder.mix"])
    "place with --granularity module --keep-whole 'blocks.*' encoder.mix"
    """
    patterns = dict.fromkeys(".".join("*" if part.isdigit() else part for part in path.split(".")) for path in paths)
    outermost = [pattern for pattern in patterns if not any(pattern.startswith(f"{other}.") for other in patterns)]
    return f"place with --granularity {granularity} --keep-whole {' '.join(map(shlex.quote, outermost))}"
