"""The published JSON Schemas of the interchange formats: `python -m gnnplace.frontends.json_schemas` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gnnplace import atomic
from gnnplace.frontends.json_cluster import ClusterDocument
from gnnplace.frontends.json_costs import CostsDocument
from gnnplace.frontends.json_graph import GraphDocument
from gnnplace.frontends.json_placement import PlacementDocument
from gnnplace.frontends.strict_json import Document

FOLDER = Path(__file__).parent / "schemas"
DOCUMENTS: tuple[type[Document], ...] = (GraphDocument, ClusterDocument, PlacementDocument, CostsDocument)


def schema(document: type[Document]) -> dict[str, Any]:
    """The JSON Schema of one format. What spans several values (indices, cycles, names) is for the reader to check."""
    found = document.model_json_schema()
    for key in ("format", "version"):
        del found["properties"][key]["default"]
    found["required"] = ["format", "version", *found.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | found


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
