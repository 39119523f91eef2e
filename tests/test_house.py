"""The house as a reader meets it: vague names, long lines, class names with two meanings and circles of imports stay out.

Modules and fragments are counted by `tests.support.house` and not limited: a new part brings its files.
"""

from __future__ import annotations

import pytest
from support.house import House


@pytest.fixture(scope="module")
def house() -> House:
    return House()


@pytest.mark.parametrize(
    "entries_of", [House.ambiguous_classes, House.vague_bindings, House.long_lines, House.circles, House.imports_of_tests]
)
def test_nothing_stands_in_a_readers_way(house, entries_of):
    entries = entries_of(house)
    assert not entries, "\n".join(entries)
