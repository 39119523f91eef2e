"""The machine code of a kernel is kept on disk as long as its own file and those of the kernels that it calls stay."""

import importlib
import os
import sys

import pytest

from gnnplace.baselines.repairing import relief
from gnnplace.compiled import stamp

HEAD = "from gnnplace.compiled import kernel\n"
INNER = HEAD + "@kernel\ndef inner(number):\n    return number + {}\n"
OUTER = HEAD + "from inner_of_test import inner\n@kernel\ndef outer(number):\n    return 9 * inner(number)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outer_of_test.py").write_text(OUTER)
    yield tmp_path
    _forget()


def _forget():
    for name in ("inner_of_test", "outer_of_test"):
        sys.modules.pop(name, None)


def _outer(folder, added):
    """The kernel `outer` as a new process would get it, after `inner` was written anew."""
    (folder / "inner_of_test.py").write_text(INNER.format(added))
    os.utime(folder / "inner_of_test.py", (added, added))  # Python's own cache looks at the time of a file
    _forget()
    importlib.invalidate_caches()
    return importlib.import_module("outer_of_test").outer


def test_a_kernel_is_compiled_anew_when_one_that_it_calls_has_changed(folder):
    assert _outer(folder, 1)(1) == 18
    again = _outer(folder, 1)
    assert again(1) == 18 and again.stats.cache_hits  # from the disk
    changed = _outer(folder, 5)
    assert changed(1) == 54 and not changed.stats.cache_hits


def test_the_stamp_of_a_kernel_covers_files_that_its_callees_import():
    assert relief.best_move.__module__ != relief.overflow.__module__  # moves.py calls scale.py
    assert len({stamp(each.py_func) for each in (relief.relieve, relief.best_move, relief.overflow)}) == 3
    assert stamp(relief.relieve.py_func) == stamp(relief.hasten.py_func)
