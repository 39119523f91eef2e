"""Parsers come first, imports after: the imports of `--help`, of usage errors, and of a simulated step."""

import gc
import subprocess
import sys

import pytest

from gnnplace.cli import COMMANDS
from gnnplace.commands.usage import importing

HEAVY = (
    "numpy", "numba", "scipy", "pandas", "pydantic", "pyarrow", "networkx", "torch", "matplotlib", "jaxtyping", "rich",
    "lightning", "mlflow",
)  # fmt: skip
ASKED = """
import sys
from gnnplace.cli import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code, *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""
RUN = """
import gc, sys
from gnnplace.cli import main
main(sys.argv[1:])
print(gc.get_freeze_count(), gc.isenabled(), " ".join(sys.modules), sep="\\n")
"""
NEEDLESS = {  # for a table of one placement whose machine code is on disk
    "pandas", "torch", "matplotlib", "networkx", "ortools", "scipy.optimize", "scipy.sparse", "scipy.linalg",
    "numba.cpython.listobj", "numba.np.linalg",  # of its compiler
    "multiprocessing", "gnnplace.portfolio.planners", "gnnplace.frontends", "gnnplace.execution", "gnnplace.corpus.hardware",
    "gnnplace.formats.graphs", "gnnplace.formats.costs", "gnnplace.report.page", "gnnplace.sources.code_graph",
}  # fmt: skip


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


def ran(*arguments):
    """The modules that a command line which succeeds imports, and whether Python's collector is spared them and works on."""
    command = [sys.executable, "-c", RUN, *arguments]
    *_, spared, collects, modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return set(modules.split()), (int(spared) > 0, collects == "True")


def test_a_simulated_step_waits_for_nothing_that_it_needs_not(tmp_path):
    placed, problem = str(tmp_path / "placement.json"), ("dlrm", "--cluster", "k40-2")
    planned, _ = ran("place", *problem, "--planner", "gpu", "-o", placed, "-q")  # which leaves the machine code of what follows
    simulated, collector = ran("simulate", *problem, "--placement", placed)
    assert planned & {"pandas", "torch", "matplotlib", "networkx", "ortools"} == set()
    assert simulated & NEEDLESS == set()
    assert "numba" in simulated and "rich.table" in simulated
    assert collector == (True, True)


def test_nothing_is_spared_where_nothing_is_imported():
    spared = gc.get_freeze_count()
    with importing():
        assert not gc.isenabled()
        import sys  # noqa: F401
    assert gc.isenabled() and gc.get_freeze_count() == spared


def test_a_collector_that_is_off_stays_off():
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
