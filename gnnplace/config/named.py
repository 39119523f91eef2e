"""What a run learns from where a command line names it: that alone, whatever the file of its settings names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

CHOOSES = {"problems": "problems", "corpus": "corpus.splits"}  # the option that chooses problems by each of them
NOTHING: Mapping[str, Any] = {"problems": [], "corpus": {}, "dims": [], "costs": []}  # sizes and costs are those of its problems


def without_what_is_replaced(document: Mapping[str, Any], options: Collection[str]) -> dict[str, Any]:
    """The document of a run under options such as `problems` and `corpus.splits`: of what it learns from only what they name.

    Other knobs of the corpus choose nothing by themselves: they stay as the file has them where `corpus.splits` is named.
    """
    kept = {name for name in NOTHING if CHOOSES.get(name, name) in options or name in options}
    return dict(document) if kept.isdisjoint(CHOOSES) else {**document, **{name: NOTHING[name] for name in NOTHING.keys() - kept}}
