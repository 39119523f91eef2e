"""What takes long: a line, and on a terminal a bar as long as it takes. Compiling, as numba tells it, is such a thing."""

import io

import pytest
from numba.core import event

from gnnplace.baselines.searching.clock import watch_compiling
from gnnplace.commands import candidate_table
from gnnplace.kept import folder


class Terminal(io.StringIO):
    """What stands for a terminal of that name."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def nobody_watches_afterwards():
    yield
    watch_compiling(None)


def compile_twice():
    for _ in range(2):
        with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
            pass


def test_compiling_once_is_a_line_where_there_is_no_terminal(capsys):
    candidate_table.say_compiling(quiet=False)
    compile_twice()
    assert capsys.readouterr().err == f"compiling once, for a minute or more; the machine code is kept in {folder()}\n"


def test_on_a_terminal_there_is_a_bar_until_it_ends(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    candidate_table.say_compiling(quiet=False)
    assert screen.getvalue() == ""
    compile_twice()
    line, _, drawn = screen.getvalue().partition("\n")
    assert line.startswith("compiling once") and drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 2  # the cursor goes and comes
    assert "━" in drawn and drawn.rstrip().endswith("\x1b[2K")


def test_quiet_says_nothing(capsys, monkeypatch):
    candidate_table.say_compiling(quiet=False)
    candidate_table.say_compiling(quiet=True)
    compile_twice()
    assert capsys.readouterr().err == ""
