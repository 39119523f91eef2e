"""The process of a command: whatever it is at, a signal ends it with one line and its status; what its streams don't take is not missed."""

import os
import signal
import subprocess
import sys

import pytest

BEGIN = """
import ctypes, os, pathlib, signal, sys
from gnnplace import cli, start
from gnnplace.formats import atomic
from gnnplace.isolation import under_way

number = getattr(signal, sys.argv[1])

def stop(*arguments):
    os.kill(os.getpid(), number)
    return 0

def run(command):
    cli.main = command
    sys.exit(start.main(["place", "graph.json"]))
"""
WAYS = {
    "plainly": "run(stop)",
    "where a library makes another error of it": """
def command(words):
    try:
        stop()
    except BaseException as error:
        raise TypeError("a validator") from error
run(command)
""",
    "where C calls back, and drops what is raised": "run(lambda words: ctypes.CFUNCTYPE(ctypes.c_int)(stop)())",
    "while a module is imported": """
class Finder:
    find_spec = staticmethod(lambda *arguments: stop() and None)
sys.meta_path.insert(0, Finder)
run(lambda words: __import__("nowhere"))
""",
    "while a thread computes": """
import threading
def command(words):
    threading.Thread(target=lambda: exec("while True: pass")).start()
    stop()
run(command)
""",
    "while a file is written": """
def command(words):
    with under_way.temporary_folder() as folder, atomic._temporary(pathlib.Path("placed.json").resolve(), atomic._new_file):
        assert os.listdir() and os.path.isdir(folder)
        stop()
run(command)
""",
    "though undoing fails": """
def command(words):
    with under_way.undone(lambda: pathlib.Path("nowhere").unlink()):
        stop()
run(command)
""",
    "though undoing doesn't end": """
start.UNDOING_S = 1
def command(words):
    with under_way.undone(lambda: signal.pause() or signal.pause()):
        stop()
run(command)
""",
}
SIGNALS = {"SIGINT": (130, "interrupted"), "SIGTERM": (143, "terminated")}


def ended(folder, program, number, before=None, **streams):
    """How a program ends: its status and its stderr."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(folder)}
    command = [sys.executable, "-c", BEGIN + program, number]
    settings = {"cwd": folder, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(command, preexec_fn=before or heed, **(settings | streams))
    return done.returncode, done.stderr


def heed():
    """What runs in a shell's background ignores Ctrl-C, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_ends_a_command_with_one_line_and_its_status(way, number, tmp_path):
    status, word = SIGNALS[number]
    assert ended(tmp_path, WAYS[way], number) == (status, f"gnnplace place: {word}\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_what_the_parent_ignores_is_ignored(number, tmp_path):
    before = lambda: signal.signal(getattr(signal, number), signal.SIG_IGN)  # noqa: E731
    assert ended(tmp_path, "run(stop)", number, before) == (0, "")


def test_a_fork_ends_without_a_word_and_undoes_nothing(tmp_path):
    program = """
def command(words):
    with under_way.undone(lambda: print("undone", file=sys.stderr)):
        child = os.fork()
        if child == 0:
            stop()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
run(command)
"""
    assert ended(tmp_path, program, "SIGTERM") == (143, "")


def test_of_the_processes_that_train_together_one_speaks(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert ended(tmp_path, "run(stop)", "SIGTERM") == (143, "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_that_is_done_keeps_its_status(number, tmp_path):
    in_the_end = "import atexit\natexit.register(stop)\nrun(lambda words: 3)"
    assert ended(tmp_path, in_the_end, number) == (3, "")
    last_of_all = "class Last:\n    __del__ = stop\nlast = Last()\nrun(lambda words: 3)"
    assert ended(tmp_path, last_of_all, number) == (3, "")


def test_where_a_bar_is_drawn_its_line_is_cleared(tmp_path):
    ours, theirs = os.openpty()
    assert ended(tmp_path, "run(stop)", "SIGINT", stderr=theirs)[0] == 130
    assert os.read(ours, 1000) == b"\r\x1b[K\x1b[?25hgnnplace place: interrupted\r\n"
