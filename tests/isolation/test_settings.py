"""Commands and their children import libraries that look for settings in the current folder where there are none."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from gnnplace.isolation import imports, python

NOTES = "import os\nassert os.environ['MATPLOTLIBRC'].endswith('mine')\nFOLDER, _config_fname = os.getcwd(), '.numba_config.yaml'\n"
PROGRAM = """
import json, os, sys
{begin}
import matplotlib
from numba.core import config
relative = [each for each in sys.path if not os.path.isabs(each)]
assert {begin!r} == 'import gnnplace' or os.path.isabs(os.environ['MATPLOTLIBRC'])
print(json.dumps([matplotlib.FOLDER, config.FOLDER, config._config_fname, os.getcwd(), relative]))
"""


@pytest.fixture
def libraries(tmp_path) -> Path:
    """What stands for the libraries: it notes in which folder it is imported."""
    for path in ("matplotlib/__init__.py", "numba/core/config.py"):
        (tmp_path / "libraries" / path).parent.mkdir(parents=True)
        (tmp_path / "libraries" / path).write_text(NOTES)
    for path in ("numba/__init__.py", "numba/core/__init__.py", "../here/.numba_config.yaml"):
        (tmp_path / "libraries" / path).parent.mkdir(exist_ok=True)
        (tmp_path / "libraries" / path).touch()
    return tmp_path / "libraries"


def _said(libraries: Path, begin: str):
    here = libraries.parent / "here"
    command = [sys.executable, "-c", PROGRAM.format(begin=begin)]
    environment = os.environ | {"MATPLOTLIBRC": "mine", "PYTHONPATH": os.pathsep.join([str(libraries), *filter(os.path.isabs, sys.path)])}
    return json.loads(subprocess.run(command, cwd=here, env=environment, check=True, capture_output=True).stdout)


def test_a_program_that_imports_the_package_keeps_what_libraries_promise_it(libraries):
    here = str(libraries.parent / "here")
    assert _said(libraries, "import gnnplace") == [here, here, ".numba_config.yaml", here, [""]]


def test_once_they_are_left_no_library_looks_for_settings_in_the_current_folder(libraries):
    begin = "from gnnplace.isolation import imports\nfor _ in range(2): imports.leave_settings_of_this_folder()"
    assert _said(libraries, begin) == ["/", "/", os.devnull, str(libraries.parent / "here"), []]


def test_children_leave_them_too(libraries, monkeypatch):
    (libraries / "of_a_test.py").write_text(PROGRAM.format(begin="assert __name__ == '__main__' and sys.argv[1:] == ['asked']"))
    monkeypatch.syspath_prepend(str(libraries))
    monkeypatch.setenv("MATPLOTLIBRC", "mine")
    here = libraries.parent / "here"
    done = subprocess.run(python.command("-m", "of_a_test", "asked"), cwd=here, env=python.environment(), check=True, capture_output=True)
    assert json.loads(done.stdout) == ["/", "/", os.devnull, str(here), []]


@pytest.mark.parametrize(("home", "expected"), [("relative", imports.NO_HOME), (None, imports.NO_HOME), ("/home/me", "/home/me")])
def test_a_home_is_absolute(monkeypatch, home, expected):
    def unknown(user):
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HOME", str(home))
    if home is None:
        monkeypatch.delenv("HOME")
    imports.leave_settings_of_this_folder()
    assert os.path.expanduser("~") == expected
