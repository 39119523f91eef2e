"""What all commands share: exit statuses (docs/formats.md#exit-codes), the parser, and how they import.

The parser prints an error as one line.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from gnnplace.complaints import printable

DONE, USAGE, NOTHING_FEASIBLE, BAD_INPUT, MEASUREMENT_FAILED, INTERRUPTED, TERMINATED = 0, 2, 3, 4, 5, 130, 143


class Parser(argparse.ArgumentParser):
    """An argument parser without abbreviated options, whose error message is one line.

    If a required argument is missing that an option of `Several` values may have taken, the message says so.
    """

    several = ""  # a hint at the words that such an option took

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"gnnplace {command}".strip(), description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        message += self.several if "arguments are required" in message else ""
        self.exit(USAGE, f"{self.prog}: error: {printable(' '.join(message.splitlines()))}; see {self.prog} --help\n")
        raise AssertionError("exit returned")


class Several(argparse.Action):
    """An option that takes all words up to the next option, and may be repeated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), *values])
        if isinstance(parser, Parser) and len(values) > 1:
            parser.several = (
                f"; {option_string} takes all words up to the next option, here {values[-1]!r} too: "
                "GRAPH comes before it"
            )


def parsed_action(
    command: str, purpose: str, parsers: Mapping[str, Callable[[], Parser]], arguments: Sequence[str]
) -> argparse.Namespace:
    """The parsed arguments of a command whose actions have a parser each; `action` is the action's name."""
    parser = Parser(command, purpose)
    parser.add_argument("action", choices=tuple(parsers), metavar="|".join(parsers), help="ACTION --help says more")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the action's arguments")
    namespace = parser.parse_args(arguments)
    return parsers[namespace.action]().parse_args(namespace.arguments, argparse.Namespace(action=namespace.action))


@contextmanager
def importing() -> Iterator[None]:
    """For the imports of a command: Python's garbage collector never visits the imported objects, which stay anyway."""
    if not gc.isenabled():
        yield
        return
    before = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        gc.enable()
