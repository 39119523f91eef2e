"""The pages of docs/ as tests read them: their headings, anchors and fenced blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


class Section(NamedTuple):
    """A heading, and the text up to the next heading of any level."""

    level: int
    anchor: str
    text: str

    def blocks(self, language: str) -> list[str]:
        """The fenced blocks of a language."""
        return [body for word, body in FENCE.findall(self.text) if word == language]


def sections(page: str) -> list[Section]:
    """The sections of a page of docs/."""
    text = (ROOT / "docs" / page).read_text()
    headings = list(HEADING.finditer(FENCE.sub(lambda fence: " " * len(fence[0]), text)))  # a `#` within a block is no heading
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    return [Section(len(h[1]), anchor(h[2]), text[h.end() : end]) for h, end in zip(headings, ends, strict=True)]


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and MkDocs make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
