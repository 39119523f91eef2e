"""What PyG generates: it writes the code of a convolution into the temporary folder, imports it, and leaves the file there."""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path


def remove_generated() -> None:
    """Removes the files of generated modules that have been imported: nothing reads them any more."""
    folder = Path(tempfile.gettempdir())
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "")
        if name.startswith("torch_geometric.") and path.parent == folder:
            for file in (path, Path(module.__cached__)):
                file.unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or it holds other programs'
        (folder / "__pycache__").rmdir()
