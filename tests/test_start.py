"""The process of a command: a signal ends it at any time with one line and its status; closed and full streams don't stop it."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("interrupts")

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
    done = subprocess.run(command, preexec_fn=before, **(settings | streams))
    return done.returncode, done.stderr


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


PRINT = "run(lambda words: print('result', flush=True) or print('progress', file=sys.stderr) or pathlib.Path('written').touch() or {})"
FULL, PROGRESS = "gnnplace place: stdout: No space left on device\n", "progress\n"


def nobody_reads():
    ours, theirs = os.pipe()
    os.close(ours)
    return theirs


@pytest.mark.parametrize(
    ("stream", "state", "expected"),
    [
        ("stdout", "closed", (0, PROGRESS)), ("stdout", "full", (4, PROGRESS + FULL)), ("stdout", "left", (0, PROGRESS)),
        ("stderr", "closed", (0, None)), ("stderr", "full", (0, None)), ("stderr", "left", (0, None)), ("stdin", "closed", (0, PROGRESS)),
    ],
)  # fmt: skip
def test_what_a_stream_does_not_take_stops_nothing(stream, state, expected, tmp_path):
    if state == "closed":
        number = ("stdin", "stdout", "stderr").index(stream)
        found = ended(tmp_path, PRINT.format(0), "SIGINT", lambda: os.close(number))
        assert found == (expected[0], expected[1] or "")
    else:
        where = os.open("/dev/full", os.O_WRONLY) if state == "full" else nobody_reads()
        assert ended(tmp_path, PRINT.format(0), "SIGINT", **{stream: where}) == expected
    assert os.listdir(tmp_path) == ["written"]


def test_a_command_that_fails_keeps_its_status_where_stdout_is_full(tmp_path):
    assert ended(tmp_path, PRINT.format(3), "SIGINT", stdout=os.open("/dev/full", os.O_WRONLY)) == (3, PROGRESS)


@pytest.mark.parametrize("closed", [(0,), (0, 1, 2)])
def test_no_file_gets_the_number_of_a_closed_stream(closed, tmp_path):
    program = """
def command(words):
    file = open("file", "w")
    print("result"), print("progress", file=sys.stderr), file.write(str(file.fileno()) + sys.stdin.read())
    file.close()
    return 0
run(command)
"""
    assert ended(tmp_path, program, "SIGINT", lambda: [os.close(number) for number in closed])[0] == 0
    assert int((tmp_path / "file").read_text()) > 2


def test_a_character_that_stdout_lacks_is_escaped(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with open(tmp_path / "out", "w") as out:
        assert ended(tmp_path, "run(lambda words: print('\\u00b5') or 0)", "SIGINT", stdout=out) == (0, "")
    assert (tmp_path / "out").read_text() == "\\xb5\n"
