"""A report as one HTML file that contains plotly.js, its scripts and its data, so it opens without a network."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, NamedTuple

from gnnplace.complaints import printable
from gnnplace.formats import atomic

ENDING = ".html"
# the browser fetches nothing
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


class Section(NamedTuple):
    """A part of a page: its title and its HTML."""

    title: str
    body: str


def check(path: str | os.PathLike[str]) -> None:
    """Raises ValueError if no report can be written: the path does not end in `.html`, or plotly is missing."""
    if not os.fspath(path).endswith(ENDING):
        raise ValueError(f"{os.fspath(path)}: a report is HTML; the ending is {ENDING}")
    if find_spec("plotly") is None:
        raise ValueError(
            f'{os.fspath(path)}: writing a report needs the package plotly: pip install "gnnplace[report]"'
        )


def write_page(path: str | os.PathLike[str], title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> None:
    """Writes a page, whole or not at all.

    `data` is drawn by the page's scripts: `figures` has plotly figures by the id of an element, `timeline` a timeline.
    Raises ValueError as `check` does, OSError if the file can't be written.
    """
    check(path)
    atomic.write_text(path, page(title, sections, data))


def page(title: str, sections: Sequence[Section], data: Mapping[str, Any]) -> str:
    """The HTML of a page."""
    from plotly.offline import get_plotlyjs  # plotly is an extra

    body = "\n".join(
        f"<section><h2>{shown(each.title)}</h2>\n{each.body}\n</section>" for each in sections if each.body
    )
    embedded = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{shown(title)}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<link rel="icon" href="data:,">',
        f"<style>{_asset('page.css')}</style>",
        f"</head>\n<body>\n<h1>{shown(title)}</h1>\n{body}",
        f'<script type="application/json" id="data">{embedded}</script>',
        f"<script>{get_plotlyjs()}</script>",
        f"<script>{_asset('timeline.js')}{_asset('page.js')}</script>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], attributes: Iterable[str] = ()) -> str:
    """An HTML table of texts; cells that hold numbers are right-aligned.

    `attributes` has the HTML attributes of each row.
    """
    row_attributes = list(attributes)
    lines = [f"<tr>{''.join(f'<th>{shown(name)}</th>' for name in header)}</tr>"]
    for number, row in enumerate(rows):
        cells = "".join(f"<td{_alignment(cell)}>{shown(cell)}</td>" for cell in row)
        lines.append(f"<tr{f' {row_attributes[number]}' if row_attributes else ''}>{cells}</tr>")
    return f'<div class="wide"><table>\n{chr(10).join(lines)}\n</table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """An HTML list of names and their values."""
    return "<dl>" + "".join(f"<dt>{shown(name)}</dt><dd>{shown(value)}</dd>" for name, value in pairs) + "</dl>"


def shown(text: str) -> str:
    """Text from any source, escaped for HTML."""
    return html.escape(printable(text))


def plain(name: str) -> str:
    """A name escaped for a plotly figure, where tags, entities, templates and formulas have a meaning.

    `timeline.js` escapes its names in the same way.

    >>> plain("100 % <b> %{x} $y$")
    '100 &#37; &#60;b&#62; &#37;{x} &#36;y&#36;'
    """
    return re.sub("[&<>%$]", lambda mark: f"&#{ord(mark[0])};", printable(name))


def note(text: str) -> str:
    """A paragraph that explains a figure or a table."""
    return f'<p class="note">{shown(text)}</p>'


def _alignment(cell: str) -> str:
    return ' class="number"' if cell == "-" or cell[:1].isdigit() or (cell[:1] in "+-" and cell[1:2].isdigit()) else ""


def _asset(name: str) -> str:
    return (files("gnnplace.report") / "assets" / name).read_text(encoding="utf-8")
