"""Libraries that print beneath Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gnnplace.isolation.imports import import_silently, silenced


@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_leads_nowhere_for_a_while(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    os.write(number, b"before ")
    with silenced(number):
        os.write(number, b"within ")
    os.write(number, b"after")
    assert capfd.readouterr()[number - 1] == "before after"


def test_a_module_that_is_imported_later_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loud_library.py").write_text("import os\nos.write(2, b'announced ')\nVALUE = 1\n")
    (tmp_path / "loud_and_broken.py").write_text("import os\nos.write(2, b'announced ')\n1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    for name in ("loud_library", "loud_library", "loud_and_broken", "no_such_library"):
        import_silently(name)
    import loud_library

    with pytest.raises(ZeroDivisionError):
        import loud_and_broken  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        import no_such_library  # noqa: F401
    os.write(2, b"heard")
    assert loud_library.VALUE == 1 and capfd.readouterr().err == "heard" and sys.meta_path == finders
