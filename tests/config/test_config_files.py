"""Configurations: the two complete runs, overrides, and errors that name the value, the rule and the nearest knob."""

from pathlib import Path

import pytest
import yaml

from gnnplace.config import files
from gnnplace.config.files import UsageError, read_config
from gnnplace.policies.hierarchical import HierarchicalConfig
from gnnplace.policies.unit_placer import UnitPlacerConfig

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", ["paper", "gnn"])
def test_the_shipped_files_are_complete_and_survive_a_round_trip(name):
    path = CONFIGS / f"{name}.yaml"
    config = read_config(path)
    assert files.to_document(config) == yaml.safe_load(path.read_text())  # no knob is left to a default
    assert files.from_document(files.to_document(config), "x") == config


def test_the_paper_and_nothing_else():
    config = read_config(CONFIGS / "paper.yaml")
    assert config.policy == HierarchicalConfig(schedule="fifo")
    training = config.training
    assert (config.policy.groups, config.policy.hidden, config.policy.width) == (256, 64, 256)
    assert (config.policy.bound, config.policy.temperature) == (5.0, 10.0)
    assert (training.groupings, training.placements, training.updates) == (1, 4, 1000)
    assert (training.optimizer.lr, training.optimizer.clip_norm) == (0.1, 1.0)
    assert (training.exploration.noise, training.exploration.noise_updates, training.mask_infeasible_after) == (0.1, 500, 500)
    assert (training.reward.kind, training.advantage.kind) == ("sqrt", "moving-average")
    assert (training.advantage.decay, training.advantage.initial, training.advantage.normalise) == (0.9, -10.0, False)
    assert training.exploration.entropy(0.5) == 0 and training.warm_start.updates == 0


def test_the_command_line_wins_over_the_file():
    arguments = ["--training.optimizer.lr", "0.5", "--policy.width=7", "--problems", "[[a, b], [c, d]]", "--seed=3"]
    config, plain = (read_config(CONFIGS / "gnn.yaml", given) for given in (arguments, []))
    assert isinstance(config.policy, UnitPlacerConfig) and config.policy.width == 7 and config.policy.rounds == 3
    assert config.training.optimizer.lr == 0.5 and config.training.optimizer.clip_norm == plain.training.optimizer.clip_norm
    assert config.problems == (("a", "b"), ("c", "d")) and config.seed == 3


def test_another_policy_starts_from_its_own_defaults():
    config = read_config(CONFIGS / "gnn.yaml", ["--policy.kind", "hierarchical", "--policy.groups=4"])
    assert config.policy == HierarchicalConfig(groups=4) and config.training.placements == 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--training.updats=3"], "'training.updats' is no knob; the nearest is 'training.updates'"),
        (["--policy.groups=3"], "'policy.groups' is no knob; the nearest is 'policy.rounds'"),
        (["--training.updates", "x"], "training.updates"),
        (["--training.updates", "-3"], "training.updates: -3 is below 0"),
        (["--training.optimizer.lr=0"], "training.optimizer.lr: 0.0 is not above 0"),
        (["--policy.schedule=given"], "policy.schedule: 'given' needs priorities"),
        (["--policy.kind=foo"], "policy.kind: 'foo' is none of hierarchical, unit-placer"),
        (["--training.placements=1"], "leave-one-out needs 2 samples"),
        (["--name", "a/b"], "name: 'a/b' names a folder"),
        (["--problems=[]"], "problems: a run needs at least one"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_its_place(arguments, words):
    with pytest.raises(UsageError) as caught:
        read_config(CONFIGS / "gnn.yaml", arguments)
    assert words in str(caught.value) and str(caught.value).startswith("command line: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trainig": {}}, "'trainig' is no knob; the nearest is 'training'"),
        ({"training": {"optimiser": {"lr": 1}}}, "'training.optimiser' is no knob; the nearest is 'training.optimizer'"),
        ({"training": {"optimizer": {"lr": "fast"}}}, "training.optimizer.lr"),
        ({"policy": {"width": 3}}, "policy.kind: None is none of"),
        ({"seed": -1}, "seed: -1 is below 0"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_the_file(tmp_path, change, words):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"policy": {"kind": "unit-placer"}} | change))
    with pytest.raises(ValueError) as caught:
        read_config(path)
    assert not isinstance(caught.value, UsageError)
    assert words in str(caught.value) and str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_every_knob_is_explained():
    told = " ".join(files.knobs_help().split())
    assert "a checkpoint whose policy's weights training starts from" in told and "of initial weights, samples and the order" in told
    assert "seconds that a placement may take" in told


@pytest.mark.parametrize("content", ["[1, 2]", "a: [", ""])
def test_a_file_that_is_no_map_is_refused(tmp_path, content):
    (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"run\.yaml: "):
        read_config(tmp_path / "run.yaml")


def test_print_config_prints_every_knob_as_overridden(capsys):
    with pytest.raises(SystemExit) as exit_:
        read_config(CONFIGS / "paper.yaml", ["--seed=9", "--print_config"])
    expected = yaml.safe_load((CONFIGS / "paper.yaml").read_text()) | {"seed": 9}
    assert exit_.value.code == 0 and yaml.safe_load(capsys.readouterr().out) == expected
