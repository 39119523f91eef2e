"""What all commands share with the shell: the exit statuses (docs/formats.md#exit-codes), and a parser that complains in one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from gnnplace.printable import printable

DONE, USAGE, NOTHING_FEASIBLE, BAD_INPUT, MEASUREMENT_FAILED, INTERRUPTED, TERMINATED = 0, 2, 3, 4, 5, 130, 143


class Parser(argparse.ArgumentParser):
    """An argument parser without abbreviations whose complaint is one line."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"gnnplace {command}".strip(), description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {printable(' '.join(message.splitlines()))}; see {self.prog} --help\n")
        raise AssertionError("exit returned")
