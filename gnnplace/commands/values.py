"""Values of options: what the text of a number, a path or a list on the command line stands for.

Each function takes the text of one value and raises ArgumentTypeError, which argparse prints with the option.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gnnplace.knobs import MOST_SEED

MOST_DIGITS = 30  # of a number


def count(text: str) -> int:
    """A count on the command line, 0 or more."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def positive(text: str) -> int:
    """A count on the command line, 1 or more."""
    if not (value := count(text)):
        raise argparse.ArgumentTypeError("0 is too few: at least 1")
    return value


def seconds(text: str) -> float:
    """Seconds on the command line, more than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def seed(text: str) -> int:
    """A seed on the command line."""
    if (value := count(text)) > MOST_SEED:
        raise argparse.ArgumentTypeError(f"{text} is above {MOST_SEED}")
    return value


def output(text: str) -> str:
    """The path of a file to write. What can't be written is refused before the command begins its work."""
    if Path(new_path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: is a folder; name a file to write")
    return text


def new_path(text: str) -> str:
    """The path of a file or a folder to write."""
    if not text:
        raise argparse.ArgumentTypeError("'' names nothing to write to")
    try:
        os.stat(text)
    except FileNotFoundError:
        if not Path(text).absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"{text}: there is no such folder to write to") from None
    except OSError as error:  # too long, a file as a folder, a link to itself
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
    return text


def names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    parts = tuple(text.split(","))
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names with commas between")
    return parts


def duration(text: str) -> float:
    """Seconds on the command line, such as `10` or `10s`."""
    return seconds(text.removesuffix("s"))


def dim(text: str) -> tuple[str, int]:
    """The name and the size of a dimension."""
    name, equals, size = text.rpartition("=")
    if not name or not size.isdecimal() or len(size) > MOST_DIGITS or not int(size):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE with a SIZE of at least 1")
    return name, int(size)
