"""Safetensors files with a strict JSON document in their metadata, which describes the tensors.

Nothing in such a file is executed. Tensors stay in the file until they are used (PyTorch maps them into memory).
"""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError, safe_open

from gnnplace.formats import strict_json
from gnnplace.isolation import regular_file

KEY = "gnnplace"
MAX_FILE_BYTES = 2**40
MAX_HEADER_BYTES = 2**26
LENGTH_BYTES = 8  # the size of the field at the start of the file that holds the header's length


class TensorFile(NamedTuple):
    """The document of a file, and its tensors by name."""

    document: dict[str, Any]
    tensors: dict[str, Any]


def read(path: str | os.PathLike[str], framework: Literal["pt", "numpy"], prefix: str = "") -> TensorFile:
    """The document, and the tensors whose names begin with `prefix`.

    Raises ValueError (one line, the path first) and OSError.
    """
    file_name = os.fspath(path)
    with regular_file.opened(file_name, MAX_FILE_BYTES, f"a checkpoint has 1 to {MAX_FILE_BYTES}") as file:
        header_bytes = int.from_bytes(file.read(LENGTH_BYTES), "little")
    if not 0 < header_bytes <= MAX_HEADER_BYTES:
        raise ValueError(
            f"{file_name}: not a checkpoint: a header of {header_bytes} bytes is not of 1 to {MAX_HEADER_BYTES}"
        )
    try:
        with safe_open(file_name, framework=framework) as tensor_file:
            text = (tensor_file.metadata() or {}).get(KEY, "{}")
            names = [name for name in sorted(tensor_file.keys()) if name.startswith(prefix)]
            tensors = {name: tensor_file.get_tensor(name) for name in names}
    except (SafetensorError, TypeError, AttributeError) as error:  # a dtype that the framework lacks
        raise ValueError(f"{file_name}: not a checkpoint: {' '.join(str(error).split())}") from error
    try:
        document = strict_json.loads(text.encode(), finite=False)
    except ValueError as error:
        raise ValueError(f"{file_name}: not a checkpoint: metadata: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"{file_name}: not a checkpoint: metadata: {strict_json.shown(document)}: an object is due")
    return TensorFile(document, tensors)
