"""What commands import when they run, imported beforehand: for tests whose commands are forks of this process."""

import ast
from importlib import import_module
from inspect import getsource


def import_all(*names: str) -> None:
    """Runs every import in the modules of `gnnplace.commands` with these names, also those inside of functions."""
    for name in names:
        for node in ast.walk(ast.parse(getsource(import_module(f"gnnplace.commands.{name}")))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                exec(ast.unparse(node), {})
