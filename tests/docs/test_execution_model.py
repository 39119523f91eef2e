"""Both simulators compute the numbers of every example of docs/execution-model.md; links and citations lead to sections."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.pages import ROOT, Section, sections
from support.worked_examples import Example, computed, computed_plainly, examples

PAGE = "execution-model.md"
WITHOUT_NUMBERS = {"execution-model", "inputs", "the-step", "memory", "schedules", "placement"}
PAGES = {path.name: {section.anchor for section in sections(path.name)} for path in (ROOT / "docs").glob("*.md")}
CITATION = re.compile(r"(?:docs/|\()([a-z-]+\.md)?#([\w-]+)")
ALL = [
    pytest.param(example, id=f"{section.anchor}-{number}-{example.schedule}")
    for section in sections(PAGE)
    for number, block in enumerate(section.blocks("yaml"))
    for example in examples(block)
]


def _among(found: Any, expected: Any) -> Any:
    """Of what was found, as much as is expected."""
    return {key: _among(found.get(key), value) for key, value in expected.items()} if isinstance(expected, dict) else found


@pytest.mark.parametrize("example", ALL)
def test_an_example_has_its_numbers(example: Example) -> None:
    assert example.expected
    assert _among(computed(example), example.expected) == example.expected


@pytest.mark.parametrize("example", ALL)
def test_the_plain_simulator_says_the_same(example: Example) -> None:
    if example.costs is not None:
        return  # it knows the roofline alone
    found = computed_plainly(example)
    both = {key: value for key, value in example.expected.items() if key in found}
    assert both or example.expected.keys() <= {"bounds_ns", "infeasible", "ends_ns"}
    assert _among(found, both) == both


@pytest.mark.parametrize("section", sections(PAGE), ids=lambda section: section.anchor)
def test_every_rule_has_an_example_of_at_most_five_ops(section: Section) -> None:
    found = section.blocks("yaml")
    assert found or section.anchor in WITHOUT_NUMBERS
    assert all(1 <= example.written <= 5 for block in found for example in examples(block))


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_lead_to_sections(page: str) -> None:
    assert len(PAGES[page]) == len(sections(page))  # no anchor twice
    for target, anchor in CITATION.findall((ROOT / "docs" / page).read_text()):
        assert anchor in PAGES[target or page], f"{target}#{anchor}"


def test_citations_lead_to_sections() -> None:
    folders = [ROOT / folder for folder in ("gnnplace", "tests", "experiments", "benchmarks", "datasets")]
    files = [ROOT / "README.md", *(path for folder in folders for end in ("*.py", "*.md") for path in folder.rglob(end))]
    cited = [(path, *found) for path in files for found in re.findall(r"docs/([a-z-]+\.md)#([\w-]+)", path.read_text())]
    assert len(cited) > 20
    for path, page, anchor in cited:
        assert anchor in PAGES[page], f"{path}: {page}#{anchor}"
