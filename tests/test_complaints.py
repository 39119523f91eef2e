"""Printed names and messages of others: one bounded line, without characters that move a cursor or reverse text (CWE-150)."""

import ast
import json
from pathlib import Path

import pytest

import gnnplace
from gnnplace.cli import main
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.commands.usage import Parser
from gnnplace.complaints import MOST_CHARACTERS, printable
from gnnplace.formats.documents import save
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.report import terminal

EVIL = "a\x1b[2J\x9b31m\u202egnp.exe\u2066\r\n$\\frac$<b>" + "y" * 300
WRITTEN = {"exports/run_pipeline.py", "exports/run_data_parallel.py"}  # scripts that exports write
PRINTS = {"report/terminal.py", "cli.py", "start.py", "commands/usage.py"}  # what prints, through `printable`


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain é 中", "plain é 中"), ("\x1b]0;t\x07", r"\x1b]0;t\x07"), ("\u202e\u200b\ud800\r\n\t", r"\u202e\u200b\ud800\r\n\t"), ("", "")],
)
def test_what_is_not_printable_is_escaped(text, shown):
    assert printable(text) == shown and printable(text).isprintable()


def test_a_long_text_is_cut_and_counted():
    assert printable("x" * 5000) == "x" * MOST_CHARACTERS + "... (5,000 characters)"
    assert len(printable("\u202e" * 50_000_000)) < 10 * MOST_CHARACTERS


def test_everything_is_printed_by_few_functions():
    """`print` and the standard streams are used where `printable` is applied, and for texts of our own."""
    root, found = Path(gnnplace.__file__).parent, set()
    for path in root.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "print(" in text or "sys.std" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write", "sys.stderr.write"):
                found.add((path.relative_to(root).as_posix(), ast.unparse(node)))
    assert {name for name, _ in found} - PRINTS - WRITTEN == {"commands/train.py"}
    assert ("commands/train.py", "sys.stdout.write(tree.knobs_help())") in found


@pytest.fixture
def hostile(tmp_path):
    """A graph and a cluster all of whose names are hostile, and a placement of it."""
    ops = [Op(f"{EVIL}{k}", EVIL, (Output(8),), flops=10**9, layer=f"{EVIL}.{k}", colocation=EVIL) for k in range(3)]
    graph = ComputationGraph.from_ops(EVIL, ops, [(0, 0, 1), (1, 0, 2)])
    devices = tuple(Device(f"{EVIL}{k}", EVIL, 2**33, 10**9 + k, 10**9) for k in range(2))
    links = tuple(Link(devices[a].name, devices[1 - a].name, 10**9) for a in range(2))
    save(graph, tmp_path / "g.json")
    save(Cluster(EVIL, devices, links), tmp_path / "c.json")
    document = {
        "format": "gnnplace.placement", "version": 1, "device": dict.fromkeys(graph.op_names, devices[0].name),
        "schedule": "critical-path",
    }  # fmt: skip
    (tmp_path / "p.json").write_text(json.dumps(document))
    return tmp_path


GIVEN = ("g.json", "--cluster", "c.json")
PLACED = (*GIVEN, "--placement", "p.json")
COMMANDS = {
    "place": ("place", *GIVEN, "--planner", "heft"), "simulate": ("simulate", *PLACED), "show": ("graphs", "show", "./g.json"),
    "explain": ("explain", *PLACED), "clusters": ("clusters", "show", "./c.json"),
    "missing": ("place", f"{EVIL}.json", "--cluster", "c.json"), "usage": ("place", EVIL, f"--{EVIL}"),
    "part": ("explain", *PLACED, EVIL), "device": ("place", *GIVEN, "--devices", EVIL),
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_names_are_printed_escaped(command, hostile, monkeypatch, capsys):
    monkeypatch.chdir(hostile)
    try:
        status = main(COMMANDS[command])
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n")) and len(out + err) < 100_000
    assert (r"\x1b[2J" in out + err) if status == 0 else (status in (2, 4) and err.count("\n") == 1)


def test_a_message_of_two_lines_is_printed_as_one(capsys):
    with pytest.raises(SystemExit):
        Parser("place", "").error("first\nsecond\x1b[31m" + "x" * 10**6)
    terminal.warn(str(MeasurementError("crash", "first\nsecond")))
    terminal.progress(quiet=False)("third\nfourth")
    terminal.print_table(("a\nb", ""), [("c\nd", "e\x1b")])
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 3 and len(err) < 5000 and "\x1b" not in out + err
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize("arguments", [("graphs", "show", "./g.json"), ("simulate", *PLACED)], ids=["graph", "step"])
def test_a_name_in_a_picture_is_no_formula(arguments, hostile, monkeypatch, capsys):
    monkeypatch.chdir(hostile)
    assert main((*arguments, "--picture", "picture.svg")) == 0
    assert (hostile / "picture.svg").stat().st_size > 1000 and not capsys.readouterr().err
