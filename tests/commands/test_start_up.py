"""Parsers come first, imports after: what `--help` and usage errors wait for."""

import subprocess
import sys

import pytest

from gnnplace.cli import COMMANDS

HEAVY = ("numpy", "numba", "scipy", "pandas", "pydantic", "pyarrow", "networkx", "torch", "matplotlib")
ASKED = """
import sys
from gnnplace.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""


def imported(*arguments):
    """The exit status of a command line, and what it imported that takes time."""
    command = [sys.executable, "-c", ASKED.format(heavy=HEAVY), *arguments]
    status, *heavy = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()[-1].split()
    return int(status), heavy


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_that_takes_time(command):
    assert imported(command, "--help") == (0, [])


@pytest.mark.parametrize("action", [("graphs", "import"), ("graphs", "synthetic"), ("clusters", "new")])
def test_nor_does_the_help_of_an_action(action):
    assert imported(*action, "--help") == (0, [])


def test_nor_does_a_command_line_that_is_wrong():
    assert imported("place", "dlrm", "--cluster", "k40-2", "--schedule", "random") == (2, [])


def test_a_simulated_step_waits_neither_for_pandas_nor_for_a_framework(tmp_path):
    imported = "print(*(name for name in ('pandas', 'torch') if name in sys.modules))"
    program = f"import sys; from gnnplace.cli import main; main(sys.argv[1:]); {imported}"
    placed = str(tmp_path / "placement.json")
    problem = ("dlrm", "--cluster", "k40-2")
    subprocess.run(
        [sys.executable, "-m", "gnnplace", "place", *problem, "--planner", "gpu", "-o", placed, "-q"], check=True, capture_output=True
    )
    command = [sys.executable, "-c", program, "simulate", *problem, "--placement", placed, "--json"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:] == [""]
