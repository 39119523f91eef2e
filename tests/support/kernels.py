"""Small kernels in files of their own, as new processes would import them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

NAME = "kernels_of_test"
TEXT = """from gnnplace.compiled import kernel
@kernel
def added(number):
    return number + {}
@kernel
def other(number):
    return number * 7
"""


def imported(folder: Path, added: int = 1):
    """The module, newly imported from a folder on Python's path, with kernels that nobody has called."""
    sys.modules.pop(NAME, None)
    path = folder / f"{NAME}.py"
    if not path.exists() or path.read_text() != TEXT.format(added):
        path.write_text(TEXT.format(added))
        for bytecode in folder.glob(f"__pycache__/{NAME}*"):
            bytecode.unlink()
    importlib.invalidate_caches()
    return importlib.import_module(NAME)
