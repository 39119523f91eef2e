"""Commands where machine code is damaged or can't be kept; `make reliability` tries all (tests/caches/cases.py)."""

import pytest
from caches.cases import cases

SAMPLE = {
    ("damaged cache", "cut"),
    ("no room for the cache", "explain"),
    ("no home", "nobody, whose home is missing: simulate, with a picture"),
}
ALL = list(cases())


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in ALL if (case.kind, case.name) in SAMPLE], ids=lambda case: f"{case.kind}: {case.name}")
def test_a_command_works_whatever_is_with_its_cache(case, tmp_path):
    tmp_path.chmod(0o755)
    assert case.broken(tmp_path / "case") is None


def test_cases_have_names_of_their_own():
    assert len({(case.kind, case.name) for case in ALL}) == len(ALL)
