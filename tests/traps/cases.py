"""Every command, as installed and by `python -m`, in a folder full of traps that lies in another one. None may be opened.

What a command is given lies elsewhere. So all that it does in its folder is to write what it was told to.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from faults.case import Case
from faults.commands import TINY
from support.fork_on_pair import CLUSTER, GRAPH, PLACEMENT
from traps import planted, watched

from gnnplace.isolation import python

SCRIPT = Path(sys.executable).with_name("gnnplace")
STARTS = {"as installed": (str(SCRIPT),), "python -m": (sys.executable, "-m", "gnnplace")}
NET = """
import torch
from torch import nn
import gnnplace as gp


def step():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    return gp.TorchStep(net, lambda net, x, y: nn.functional.mse_loss(net(x), y), (torch.randn(4, 8), torch.randn(4, 4)))
"""
GRAPH_DEF = """node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 2 } } } } }
node { name: "y" op: "Relu" input: "x" attr { key: "T" value { type: DT_FLOAT } } }"""
ON = ("{own}/graph.json", "--cluster", "{own}/cluster.json")
NETWORK = ("{own}/net.py:step", "--cluster", "k40-2", "-q")
TRAIN = ("train", "--problems=[[{own}/graph.json, {own}/cluster.json]]", *TINY)
MADE_BY = {"{own}/n.json": ("place", *NETWORK, "--planner=gpu", "-o", "n.json"), "{own}/runs": TRAIN}
COMMANDS = {  # with what they write, and the package that they need
    "place": (("place", *ON, "--planner=heft", "-o", "p.json", "-q"), ("p.json",), None),
    "place a module, with a report": (("place", *NETWORK, "--evaluations=9", "--report", "r.html"), ("r.html",), "plotly"),
    "simulate, with a picture": (("simulate", *ON, "--placement={own}/placement.json", "--picture", "a.png"), ("a.png",), None),
    "explain": (("explain", *ON, "--placement={own}/placement.json", "--json"), (), None),
    "compare": (("compare", *ON, "--evaluations=9", "--csv", "table.csv", "-q"), ("table.csv",), None),
    "export to accelerate": (("export", *NETWORK, "--placement={own}/n.json", "--to=accelerate", "-o", "m.json"), ("m.json",), None),
    "export a trace": (("export", *ON, "--placement={own}/placement.json", "--to=chrome-trace", "-o", "t.json"), ("t.json",), None),
    "train": (TRAIN, ("runs",), None),
    "measure": (("measure", "{own}/net.py:step", "--cluster={own}/core.json", "--planner=gpu", "-q"), (), None),
    "calibrate": (("calibrate", "{own}/net.py:step", "-o", "here.json", "-q"), ("here.json",), None),
    "report": (("report", "{own}/runs/unit-placer-1", "-o", "r.html", "-q"), ("r.html",), "plotly"),
    "clusters": (("clusters", "show", "k40-2"), (), None),
    "graphs": (("graphs", "show", "dlrm"), (), None),
    "place ONNX": (("place", "{own}/net.onnx", "--cluster=k40-2", "--planner=gpu", "-q"), (), "onnx"),
    "place a GraphDef": (("place", "{own}/net.pbtxt", "--cluster=k40-2", "--planner=gpu", "-q"), (), "tensorflow"),
}


def cases() -> Iterator[Case]:
    """Every command in each way to start it."""
    for start in STARTS if SCRIPT.exists() else ("python -m",):
        for name, (_, _, package) in COMMANDS.items():
            if package is None or find_spec(package) is not None:
                yield Case(f"traps, {start}", name, partial(_broken, start, name))


def _broken(start: str, name: str, folder: Path) -> str | None:
    """Runs the command, again where it tries to import what has no trap yet."""
    arguments, written, _ = COMMANDS[name]
    prepare(name)
    for turn in count():
        here, names = folder / str(turn) / "parent" / "here", frozenset(_names())
        here.mkdir(parents=True)
        for place in (here, here.parent):
            planted.plant(place, names)
        ended = watched.run([*STARTS[start], *given(arguments)], here, folder / str(turn) / "notes")
        if executed := [path.read_text() for path in folder.rglob(planted.EXECUTED)]:
            return f"ran {executed}"
        if ended.status:
            return f"status {ended.status}: {ended.err}"
        if done := watched.trapped(ended, here, written):
            return "; ".join(done)
        if not (unknown := {each.partition(".")[0] for each in ended.imported} - names - {planted.OURS}):
            return None
        _names().update(unknown)
    return None


@cache
def _names() -> set[str]:
    """The names of modules that have a trap: those that are installed, and all that commands tried to import so far."""
    return planted.installed_names()


def prepare(name: str) -> None:
    """Makes what a command is given, once."""
    for made, command in MADE_BY.items():
        if any(made in each for each in COMMANDS[name][0]):
            _prepared(*given(command))


def given(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with the folder of what it is given."""
    return [each.replace("{own}", str(own())) for each in arguments]


@cache
def own() -> Path:
    """The files that commands are given, made once."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    (made / "net.py").write_text(NET)
    (made / "net.pbtxt").write_text(GRAPH_DEF)
    core = CLUSTER | {"name": "core", "devices": [CLUSTER["devices"][0] | {"memory_bytes": 10**9}], "links": []}
    for name, document in {"graph": GRAPH, "cluster": CLUSTER, "placement": PLACEMENT, "core": core}.items():
        (made / f"{name}.json").write_text(json.dumps(document))
    if find_spec("onnx") is not None:
        from support.onnx_files import model, node, saved, value

        saved(made, model([node("Relu", "x", "y")], [value("x", [2])], [value("y", [2])]))
    return made


@cache
def _prepared(*command: str) -> None:
    """A command that makes what another one is given."""
    subprocess.run(python.command("-m", "gnnplace", *command), cwd=own(), env=python.environment(), check=True, capture_output=True)
