"""The options of `gnnplace place` that keep together what a target can't part."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from itertools import takewhile

from gnnplace.choices import Granularity

ONE_DEVICE = "--devices with one device would"


def together(module: str, other: str) -> str:
    """What keeps two modules on one device.

    >>> together("layers.0.input", "layers.1.hidden"), together("wte", "head")
    ('place with --keep-whole layers', 'no granularity would do, --devices with one device would')
    """
    shared = around(module, other)
    return f"place with --keep-whole {'.'.join(shared)}" if shared else f"no granularity would do, {ONE_DEVICE}"


def around(module: str, other: str) -> list[str]:
    """The parts of the innermost module that two are in."""
    pairs = zip(module.split("."), other.split("."), strict=False)
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def beside(module: str, other: str) -> str:
    """What keeps two modules on one device, and nothing else there.

    >>> beside("wte", "lm_head")
    'place with --granularity module --keep-whole wte+lm_head'
    """
    return f"place with --granularity module --keep-whole {shlex.quote(f'{module}+{other}')}"


def whole(paths: Iterable[str], granularity: Granularity = "module") -> str:
    """What keeps each of some modules whole, and those that are numbered like them.

    >>> whole(["blocks.0.mlp", "blocks.3", "encoder.mix"])
    "place with --granularity module --keep-whole 'blocks.*' encoder.mix"
    """
    patterns = dict.fromkeys(".".join("*" if part.isdigit() else part for part in path.split(".")) for path in paths)
    outer = [each for each in patterns if not any(each.startswith(f"{other}.") for other in patterns)]
    return f"place with --granularity {granularity} --keep-whole {' '.join(map(shlex.quote, outer))}"
