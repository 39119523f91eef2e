"""The program itself: exit statuses, one line for wrong use, its imports, and readers that leave early."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.fork_on_pair import IN, run

from gnnplace import package_data


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("simulat",), 2, "invalid choice: 'simulat'"),
        ((), 2, "required: COMMAND"),
        (("simulate",), 2, "required: GRAPH, --cluster, --placement"),
        (("simulate", *IN, "--placement", "placement.json", "--fast"), 2, "unrecognized arguments: --fast"),
        (("simulate", *IN, "--placement", "placement.json", "--schedule", "random"), 2, "invalid choice: 'random'"),
        (("simulate", *IN, "--placement", "placement.json", "--schedule", "given"), 4, "priority: the schedule 'given' needs priorities"),
        (("simulate", *IN, "--placement", "none.json"), 4, "gnnplace simulate: none.json: No such file or directory"),
        (("simulate", *IN, "--placement", "."), 4, ".: Is a directory"),
        (("simulate", *IN, "--placement", "graph.json"), 4, "graph.json: format: 'gnnplace.graph' is not known"),
        (("simulate", *IN, "--placement", "placement.json", "--picture", "step.pgf"), 4, "the ending is none of .png, .svg, .pdf"),
        (("simulate", "nmt", "--cluster", "k40-2", "--placement", "placement.json"), 4, "'nmt' is no graph of the corpus"),
        (("compare", "graph.json", "--cluster", "k80-2"), 4, "'k80-2' is no cluster preset"),
        (("place", *IN, "-o", "none/found.json"), 2, "none/found.json: there is no such folder"),
        (("place", *IN, "-o", "p.json", "--planner", "heft", "--checkpoint", "c"), 2, "--checkpoint: heft takes none; best does"),
        (("place", *IN, "-o", "p.json", "--planner", "heft", "--budget", "1s"), 2, "--budget: heft takes none; best does"),
        (("place", *IN, "-o", "p.json", "--budget", "soon"), 2, "'soon' is not a number of seconds"),
        (("place", *IN, "-o", "p.json", "--evaluations", "0"), 2, "0 is too few"),
        (("place", *IN, "-o", "p.json", "--evaluations", "9", "--budget", "1s"), 2, "not allowed with"),
        (("place", *IN, "-o", "p.json", "--samples", "-1"), 2, "'-1' is not a count"),
        (("place", *IN, "--samples", "4"), 2, "--samples: are drawn by a trained policy; name its --checkpoint"),
        (("place", *IN, "--planner", "heft", "--samples", "0"), 2, "--samples: are drawn by a trained policy"),
        (("compare", *IN, "--samples", "4"), 2, "--samples: are drawn by a trained policy"),
        (("place", *IN, "-o", ""), 2, "-o/--output: '' names nothing to write to"),
        (("place", *IN, "-o", 300 * "a"), 2, "aaa: File name too long"),
        (("place", *IN, "-o", "graph.json/a"), 2, "graph.json/a: Not a directory"),
        (("place", *IN, "-o", "saved"), 2, "-o/--output: saved: is a folder; name a file to write"),
        (("place", *IN, "--seed", "-1"), 2, "--seed: '-1' is not a count"),
        (("compare", "--checkpoint", "c", "g.json", "--cluster", "k40-2"), 2, "GRAPH; --checkpoint takes all words up to the next option"),
        (("place", "--keep-whole", "h.0", "bert-base"), 2, "--keep-whole takes all words up to the next option, here 'bert-base'"),
        (("compare", *IN, "--seed", str(2**63)), 2, "--seed: 9223372036854775808 is above 9223372036854775807"),
        (("compare", *IN, "--csv", "saved/"), 2, "--csv: saved/: is a folder; name a file to write"),
        (("compare", *IN, "--report", ""), 2, "--report: '' names nothing to write to"),
        (("graphs", "synthetic", "layered", "--ops", "9", "-o", "saved"), 2, "-o/--output: saved: is a folder"),
        (("measure", "n.py:f", "--cluster", "cpu-2", "--seed", "-1"), 2, "--seed: '-1' is not a count"),
        (("export", *IN, "--placement", "none.json", "--to", "dot", "-o", "saved"), 2, "saved: is a folder; name a file to write"),
        (("export", *IN, "--placement", "none.json", "--to", "tensorflow", "-o", "saved"), 2, "saved: is a folder; name a new one"),
        (("train", "--seeds", str(2**63)), 2, "--seeds: 9223372036854775808 is above 9223372036854775807"),
        (("graphs", "shwo"), 2, "invalid choice: 'shwo'"),
        (("graphs", "show", "none"), 4, "'none' is no graph of the corpus"),
        (("graphs", "show", "net.py"), 4, "net.py: names no function; write net.py:FUNCTION"),
        (("graphs", "show", "some/net.py"), 4, "some/net.py: names no function"),
        (("graphs", "show", "saved"), 4, "saved: is a SavedModel, not a GraphDef; give GRAPH as FILE.py:FUNCTION"),
        (("graphs", "show", "./saved/"), 4, "./saved/: is a SavedModel"),
        (("graphs", "show", "model.pt"), 4, "model.pt: unknown format; the extension must be one of .onnx, "),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line_and_a_status(folder, capsys, monkeypatch, arguments, status, message):
    shutil.copytree(package_data.folder("datasets") / "clusters", folder / "clusters")
    monkeypatch.setenv("GNNPLACE_DATASETS", str(folder))
    (folder / "model.pt").write_bytes(b"PK")
    (folder / "saved").mkdir()
    (folder / "saved" / "saved_model.pb").write_bytes(b"")
    found, out, err = run(capsys, *arguments)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert message in err


def test_help_and_simulate_import_neither_torch_nor_tensorflow(folder):
    program = (
        "import sys; from gnnplace.cli import main\n"
        "for arguments in (['--help'], 'simulate graph.json --cluster cluster.json --placement placement.json --json'.split()):\n"
        "    try: main(arguments)\n"
        "    except SystemExit: assert 'numpy' not in sys.modules\n"
        "heavy = {'torch', 'tensorflow', 'lightning', 'mlflow', 'torch_geometric'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "commands:" in done.stdout and json.loads(done.stdout.splitlines()[-1])["step_time_ns"] == 50


def test_the_program_itself_ends_with_the_status_and_without_a_traceback(folder):
    (folder / "graph.json").write_text('{"format": "gnnplace.graph", "version": 1, "name": "g", "ops": [{}], "edges": []}')
    command = [sys.executable, "-m", "gnnplace", "simulate", *IN, "--placement", "placement.json"]
    done = subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "gnnplace simulate: graph.json: ops[0].name: is missing; ops[0].kind: is missing; ops[0].outputs: is missing\n"


def test_a_reader_that_leaves_is_no_error(folder):
    command = f"{sys.executable} -m gnnplace graphs show graph.json --cluster cluster.json --json | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def _environment():
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
