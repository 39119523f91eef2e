"""Every example runs and says what it promises; the example of a policy is one in every way once its line is in the table."""

import runpy
from pathlib import Path

import pytest
from support.graphs import chains

from gnnplace.config import files, tree
from gnnplace.config.run import RunConfig
from gnnplace.policies import registry
from gnnplace.policies.protocol import PolicyShape
from gnnplace.training.run import description
from gnnplace.training.run.description import described

EXAMPLES = Path(__file__).parents[2] / "examples"


def learns(said: str) -> None:
    """A trained policy has found what is faster than one device, and untrained it was slower."""
    times = {name: int(value.split()[0]) for name, value in (line.split(": ") for line in said.splitlines())}
    assert times["best sample"] < times["one device"] < times["untrained"] and times["trained"] < times["untrained"]


def learns_in_its_own_phase(said: str) -> None:
    untrained, after = (int(line.split(": ")[1].split()[0]) for line in said.splitlines())
    assert after < untrained


PROMISES = {"add_a_policy": learns, "add_a_policy_with_a_phase": learns_in_its_own_phase}


@pytest.fixture(autouse=True)
def the_table_stays_as_it_was():
    before = dict(registry.POLICIES)
    yield
    registry.POLICIES.clear()
    registry.POLICIES.update(before)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_runs(path, capsys):
    assert len(path.read_text().splitlines()) <= 100
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert said
    if path.stem in PROMISES:
        PROMISES[path.stem](said)


def test_one_line_brings_a_policy_to_configurations_and_checkpoints():
    runpy.run_path(str(EXAMPLES / "add_a_policy.py"))
    config = files.read_settings("linear", None, ["--policy.units", "weights"])
    assert isinstance(config, RunConfig) and config.policy.kind == "linear" and config.policy.units == "weights"
    written = description.document(config, PolicyShape(3), [chains(2, 2, 3)])
    again = files.from_document(written["config"], "x")
    assert again == config and described(again, PolicyShape(*written["shape"].values())).policy.score.out_features == 3
    assert "One linear layer from the features of a unit" in tree.knobs_help()
