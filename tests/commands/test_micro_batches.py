"""Steps of several micro-batches, as users say them: options, the placement document that keeps them, and refusals in one line."""

import json

import pytest
from support.fork_on_pair import IN, run
from support.short_searches import shorten_searches
from support.slow import slow

from gnnplace.commands import options
from gnnplace.exports.targets import TARGETS

TWO = ("--micro-batches", "2")
PLACE = ("place", *IN, "--planner", "heft", "-q")
READ = ("--placement", "two.json")


@pytest.fixture
def two(folder, capsys):
    """The folder with two.json, a placement of two requests of the graph, and what `place` printed."""
    status, out, err = run(capsys, *PLACE, *TWO, "-o", "two.json")
    assert (status, err) == (0, "")
    return folder, out


def test_the_placement_says_which_step_it_is_of(two, capsys):
    folder, printed = two
    document = json.loads((folder / "two.json").read_text())
    assert document["micro_batches"] == 2 and not {"copies", "shared"} & document.keys()
    assert document["graph"]["ops"] == 3 and {"x@0", "x@1", "left/state", "right@1"} < document["device"].keys()
    step = document["predicted"]
    assert (step["micro_batches"], step["micro_batch_time_ns"]) == (2, round(step["step_time_ns"] / 2))
    assert "2 requests of fork (8 ops) on pair" in printed and "a request, schedule critical-path; a request is fork as given" in printed
    status, out, _ = run(capsys, "simulate", *IN, *READ, "--json")
    assert status == 0 and json.loads(out) == step
    assert run(capsys, "simulate", *IN, *READ, *TWO, "--json")[1] == out
    assert "2 requests of fork on pair" in run(capsys, "simulate", *IN, *READ)[1]


def test_a_large_step_is_announced_before_it_is_made(two, capsys, monkeypatch):
    assert run(capsys, "simulate", *IN, *READ)[2] == ""
    monkeypatch.setattr(options, "LARGE_STEP", 6)
    out, err = run(capsys, "simulate", *IN, *READ)[1:]
    assert err == "a step of 2 copies of fork, some 6 ops: seconds to make, more to bound\n" and "2 requests of fork" in out
    assert run(capsys, "simulate", *IN, *READ, "-q")[2] == ""


def test_a_step_of_one_is_what_it_was_without_the_option(folder, capsys):
    plain = json.loads(run(capsys, *PLACE, "--json")[1])
    one = json.loads(run(capsys, *PLACE, "--json", "--micro-batches", "1", "--copies", "free")[1])
    assert plain["provenance"].pop("wall_ns") and one["provenance"].pop("wall_ns")
    assert plain == one and not {"micro_batches", "copies", "shared"} & plain.keys()


def test_every_command_that_reads_a_placement_reads_its_step(two, capsys):
    folder, _ = two
    assert "2 requests of fork on pair: " in run(capsys, "explain", *IN, *READ)[1]
    assert json.loads(run(capsys, "explain", *IN, "left@1", *READ, "--json")[1])["micro_batches"] == 2
    chain = json.loads(run(capsys, "explain", *IN, *READ, "--json")[1])["chain"]
    assert {each for part in chain for each in part["micro_batches"]} <= {0, 1} and chain[-1]["micro_batches"]
    assert run(capsys, "export", *IN, *READ, "--to", "dot", "-o", "step.dot")[0] == 0 and "left@1" in (folder / "step.dot").read_text()
    better = run(capsys, "place", *IN, "--start", "two.json", "--evaluations", "5", "-q", "--json")[1]
    assert json.loads(better)["micro_batches"] == 2


def test_a_graph_shows_what_a_step_of_several_could_gain(folder, capsys):
    assert "2 requests of fork on pair" in run(capsys, "graphs", "show", *IN, *TWO)[1]


@pytest.mark.parametrize("shown", ["json", slow("table")])
def test_compare_shows_the_time_of_each(shown, folder, capsys, monkeypatch):
    shorten_searches(monkeypatch)
    arguments = ("compare", *IN, *TWO, "--copies", "free", "--evaluations", "1", "-q")
    if shown == "json":
        rows = json.loads(run(capsys, *arguments, "--json")[1])["planners"]
        assert all(row["micro_batch_time_ns"] == round(row["step_time_ns"] / 2) for row in rows if row["step_time_ns"])
        return
    out = run(capsys, *arguments)[1]
    assert "2 requests of fork (8 ops) on pair" in out and "a request" in out and "; a request is fork as given" in out


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--micro-batches", "0"), 2, "0 is too few: at least 1"),
        (("--micro-batches", "-1"), 2, "'-1' is not a count"),
        (("--micro-batches", "many"), 2, "'many' is not a count"),
        (("--micro-batches", "1" + 40 * "0"), 2, "is not a count"),
        (("--micro-batches", "1" + 12 * "0"), 4, "micro_batches: 1000000000000 are more than the 10,000,000 ops that a graph may have"),
        ((*TWO, "--family-shares", "layer"), 2, "'layer' is not LAYER=N,N,..."),
        ((*TWO, "--shares", "1,1", "--family-shares", "a=2,x"), 2, "'x' is not a count"),
        ((*TWO, "--replicas", "2", "--ring-size", "0"), 2, "argument --ring-size: 0 is too few: at least 1"),
        (("--micro-batches", "4", "--replicas", "4", "--ring-size", "3"), 4, "ring_size: 3 does not divide the 4 replicas"),
        ((*TWO, "--shares", "1,1", "--family-shares", "a=0,3"), 4, "family_shares: (0, 3) of 'a' sum to 3, not to 2 micro-batches"),
        ((*TWO, "--copies", "x"), 2, "argument --copies: invalid choice: 'x'"),
        ((*TWO, "--shared-input", "y"), 4, "shared: 'y' is no input of the graph; those are none"),
        (("--copies", "free"), 2, "--copies: a step of one micro-batch has no copies; say --micro-batches, too"),
        (("--shared-input", "x"), 2, "--shared-input: a step of one micro-batch has no copies"),
        ((*TWO, "--start", "placement.json"), 2, "micro_batches: 2 is not 1, that of the step in placement.json"),
    ],
)
def test_what_is_no_step_is_one_line_and_no_file(folder, capsys, options, status, message):
    planner = ("--planner", "best") if "--start" in options else ("--planner", "heft")
    found, out, err = run(capsys, "place", *IN, "-q", *planner, *options, "-o", "none.json")
    assert (found, out, err.count("\n")) == (status, "", 1) and message in err and not (folder / "none.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", *IN, *READ, "--micro-batches", "8"), "micro_batches: 8 is not 2, that of the step in two.json; leave it to the file"),
        (("explain", *IN, *READ, "--copies", "free"), "copies: 'free' is not 'together', that of the step in two.json"),
        (("simulate", *IN, *READ, *TWO, "--replicas", "2"), "replicas: 2 is not 1, that of the step in two.json"),
        (
            ("simulate", *IN, "--placement", "placement.json", "--copies", "free"),
            "copies: 'free' is not 'together', that of the step in plac",
        ),
        (("simulate", *IN, *READ, "--shared-input", "x"), "shared: ('x',) is not (), that of the step in two.json"),
        (("measure", "net.py:step", *IN[-2:], *READ, "--copies", "free"), "copies: 'free' is not 'together', that of the step in two.json"),
        (("train", *TWO, "--resume", "run"), "--resume: goes on with the run's own configuration, so --micro-batches can't be changed"),
    ],
)
def test_another_step_than_that_of_the_placement_is_refused(two, capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1) and message in err


RUNS_ONE = [name for name, target in TARGETS.items() if (target.takes_model or target.tries) and target.folder != "several"]


@pytest.mark.parametrize("to", RUNS_ONE)
def test_programs_that_run_the_model_run_one_micro_batch(two, capsys, to):
    status, out, err = run(capsys, "export", *IN, *READ, "--to", to, "-o", "out")
    assert (status, out, err.count("\n")) == (2, "", 1) and not (two[0] / "out").exists()
    assert f"--to {to}: runs the model as it is, one micro-batch a step, and this step has 2; place it with --micro-batches 1" in err


def test_a_placement_keeps_the_shares_of_families(capsys, tmp_path):
    path = str(tmp_path / "p.json")
    form = ("--micro-batches", "3", "--shares", "1,2", "--family-shares", "layers.7=0,3", "--family-shares", "out=0,3")
    status, out, err = run(capsys, "place", "squeezenet", "--cluster", "k40-2", *form, "--planner", "heft", "-q", "-o", path)
    assert (status, err) == (0, "") and "3 micro-batches of squeezenet" in out
    assert json.loads((tmp_path / "p.json").read_text())["family_shares"] == {"layers.7": [0, 3], "out": [0, 3]}
    read = ("simulate", "squeezenet", "--cluster", "k40-2", "--placement", path)
    assert run(capsys, *read)[0] == run(capsys, *read, *form)[0] == 0
    status, out, err = run(capsys, *read, "--family-shares", "out=0,3")
    assert (status, out) == (2, "") and err.count("\n") == 1 and "family_shares: (('out', (0, 3)),) is not " in err


def test_auto_takes_the_number_with_the_least_time_for_each(capsys, tmp_path):
    arguments = ("squeezenet", "--cluster", "k40-2", "--planner", "ddp", "-o", str(tmp_path / "p.json"))
    status, _, err = run(capsys, "place", *arguments, "--micro-batches", "auto:4")
    assert status == 0 and "4 micro-batches: " in err
    assert json.loads((tmp_path / "p.json").read_text())["micro_batches"] == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", *IN, "--micro-batches", "auto"), "--micro-batches auto: place chooses the number"),
        (("place", *IN, "--micro-batches", "auto:0"), "0 is too few: at least 1"),
        (
            ("place", *IN, "--micro-batches", "auto", "--copies", "together"),
            "best chooses the form, too; leave --copies and --replicas to it",
        ),
        (
            ("place", *IN, "--micro-batches", "auto", "--granularity", "module"),
            "goes with no --start, --checkpoint, --fusion, --for and no constraint",
        ),
    ],
)
def test_auto_is_for_place_without_constraint(arguments, words, folder, capsys):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "") and words in err
