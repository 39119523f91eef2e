"""The published JSON Schemas of the interchange formats: `python -m gnnplace.formats.schemas` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnplace.formats import atomic
from gnnplace.formats.clusters import ClusterDocument
from gnnplace.formats.costs import CostsDocument
from gnnplace.formats.graphs import GraphDocument
from gnnplace.formats.placements import PlacementDocument
from gnnplace.formats.strict_json import Document

FOLDER = Path(__file__).parent / "json_schemas"
DOCUMENTS: tuple[type[Document], ...] = (GraphDocument, ClusterDocument, PlacementDocument, CostsDocument)


def schema(document: type[Document]) -> dict[str, Any]:
    """The JSON Schema of one format. What spans several values (indices, cycles, names) is for the reader to check."""
    described = document.model_json_schema()
    for key in ("format", "version"):
        del described["properties"][key]["default"]
    described["required"] = ["format", "version", *described.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | described


def files() -> dict[Path, str]:
    """The text of each schema file."""
    names = {document: document.model_fields["format"].default.removeprefix("gnnplace.") for document in DOCUMENTS}
    return {FOLDER / f"{name}.json": json.dumps(schema(document), indent=1) + "\n" for document, name in names.items()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for path, text in files().items():
        atomic.write_text(path, text)


if __name__ == "__main__":
    main()
