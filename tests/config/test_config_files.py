"""Configurations: the complete runs, overrides, and errors that name the value, the rule and the nearest knob."""

from pathlib import Path

import pytest
import yaml

from gnnplace import cli
from gnnplace.config import files, tree
from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.config.files import UsageError, read_config
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig

CONFIGS = Path(__file__).parents[2] / "configs"
PUBLISHED, UNIT_PLACER = CONFIGS / "hierarchical" / "published.yaml", CONFIGS / "unit-placer" / "tuned.yaml"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_shipped_files_are_complete_and_survive_a_round_trip(path):
    config = read_config(path)
    assert config.policy.kind == path.parent.name
    assert files.to_document(config) == yaml.safe_load(path.read_text())  # no knob is left to a default
    assert files.from_document(files.to_document(config), "x") == config


def test_the_paper_and_nothing_else():
    config = read_config(PUBLISHED)
    assert config.policy == HierarchicalConfig(schedule="fifo")
    training = config.training
    assert (config.policy.groups, config.policy.hidden, config.policy.width) == (256, 64, 256)
    assert (config.policy.bound, config.policy.temperature) == (5.0, 10.0)
    assert (training.groupings, training.placements, training.updates) == (1, 4, 1000)
    assert (training.optimizer.lr, config.trainer["gradient_clip_val"]) == (0.1, 1.0)
    assert (training.exploration.noise, training.exploration.noise_updates, training.mask_infeasible_after) == (0.1, 500, 500)
    assert (training.reward.kind, training.credit.baseline, training.credit.returns) == ("sqrt", "moving-average", "terminal")
    assert (training.credit.decay, training.credit.initial, training.credit.normalise) == (0.9, -10.0, False)
    assert (
        training.exploration.entropy(0.5) == 0
        and training.warm_start.updates == training.grouping.updates == 0
        and config.algorithm == ReinforceConfig(decisions="sum")
    )


def test_the_command_line_wins_over_the_file():
    arguments = ["--training.optimizer.lr", "0.5", "--policy.width=7", "--problems", "[[a, b], [c, d]]", "--seed=3"]
    config, plain = (read_config(UNIT_PLACER, given) for given in (arguments, []))
    assert isinstance(config.policy, UnitPlacerConfig) and config.policy.width == 7 and config.policy.rounds == 3
    assert config.training.optimizer.lr == 0.5 and config.training.optimizer.eps == plain.training.optimizer.eps
    assert config.problems == (("a", "b"), ("c", "d")) and config.seed == 3


def test_encoders_differ_in_the_knobs_of_the_encoder_alone():
    """The sentence by which people know the project: `train.py --encoder paper|gnn`, whatever the settings."""
    for settings in ("published", "tuned"):
        paper, gnn = (files.to_document(files.read_settings("hierarchical", settings, [], encoder)) for encoder in ("paper", "gnn"))
        assert {knob for knob in paper["policy"] if paper["policy"][knob] != gnn["policy"][knob]} == {"features", "neighbours"}
        assert {**paper, "policy": None} == {**gnn, "policy": None}
        assert paper["policy"]["kind"] == "hierarchical"


def test_the_command_line_wins_over_the_encoder():
    config = read_config(PUBLISHED, ["--policy.features=paper"], "gnn")
    assert config.policy == HierarchicalConfig(schedule="fifo", neighbours="messages") and config.policy.encodes_with == "paper+messages"


def test_a_policy_without_a_choice_of_encoder_refuses_one():
    with pytest.raises(UsageError, match="--encoder: improver has no encoder 'gnn': it has no choice of encoder"):
        files.read_settings("improver", "tuned", [], "gnn")
    with pytest.raises(UsageError, match="--encoder: placeto has no encoder 'paper': it has gnn"):
        files.read_settings("placeto", "published", [], "paper")
    with pytest.raises(UsageError, match="--encoder: hierarchical has no encoder 'lstm': it has paper, gnn"):
        read_config(PUBLISHED, [], "lstm")


def test_settings_that_are_not_there_are_named():
    with pytest.raises(UsageError, match="--settings: unit-placer has no 'published' settings; it has tuned"):
        files.read_settings("unit-placer", "published")
    with pytest.raises(UsageError, match="--policy: 'unit-placr' is no policy; nearest is 'unit-placer'"):
        files.read_settings("unit-placr")


def test_another_algorithm_keeps_the_knobs_that_both_have():
    config = read_config(UNIT_PLACER, ["--algorithm.kind=ppo", "--algorithm.epochs=3"])
    assert config.algorithm == PpoConfig(epochs=3, self_imitation=1.0) and config.training.placements == 64


def test_flags_of_the_trainer_come_from_both_and_are_checked():
    config = read_config(UNIT_PLACER, ["--trainer.devices=2", "--trainer.strategy", "ddp", "--trainer.max_time=00:00:10:00"])
    assert config.trainer == {"gradient_clip_val": 10.0, "devices": 2, "strategy": "ddp", "max_time": "00:00:10:00"}
    assert files.from_document(files.to_document(config), "x") == config


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--training.updats=3"], "'training.updats' is no knob; the nearest is 'training.updates'"),
        (["--policy.groups=3"], "'policy.groups' is no knob; the nearest is 'policy.rounds'"),
        (["--training.updates", "x"], "training.updates"),
        (["--training.updates", "-3"], "training.updates: -3 is below 0"),
        (["--training.optimizer.lr=0"], "training.optimizer.lr: 0.0 is not above 0"),
        (["--policy.schedule=given"], "policy.schedule: 'given' needs priorities"),
        (["--policy.kind=hierarchical"], "is of 'unit-placer'; choose another policy with --policy"),
        (["--algorithm.kind=foo"], "algorithm.kind: 'foo' is none of reinforce, ppo"),
        (["--algorithm.epochs=3"], "'algorithm.epochs' is no knob"),
        (["--validation.splits=[test]"], "clusters: none is named or drawn"),
        (["--validation.splits=[test]", "--validation.clusters=[k40-2]"], "needs both training.validation_every and validation.splits"),
        (["--corpus.splits=[training]"], "splits: 'training' is no part of the corpus; nearest is 'train'"),
        (["--corpus.lineages=[lstm]"], "lineages: 'lstm' is no lineage"),
        (["--training.credit.baseline=moving-average"], "training.credit.normalise: true divides advantages by a spread"),
        (["--training.placements=1"], "leave-one-out needs 2 samples"),
        (["--name", "a/b"], "name: 'a/b' names a folder"),
        (["--problems=[]"], "problems: a run needs at least one"),
        (["--register=a:b"], "register: 'a:b' names a model"),
        (["--register=a", "--tracking=none"], "register: MLflow's registry is part of tracking 'mlflow'"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_its_place(arguments, words):
    with pytest.raises(UsageError) as caught:
        read_config(UNIT_PLACER, arguments)
    assert words in str(caught.value) and str(caught.value).startswith("command line: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trainig": {}}, "'trainig' is no knob; the nearest is 'training'"),
        ({"training": {"optimiser": {"lr": 1}}}, "'training.optimiser' is no knob; the nearest is 'training.optimizer'"),
        ({"training": {"optimizer": {"lr": "fast"}}}, "training.optimizer.lr"),
        ({"policy": {"width": 3}}, "policy.kind: None is none of"),
        ({"seed": -1}, "seed: -1 is not between 0"),
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
    told = " ".join(tree.knobs_help().split())
    assert "a checkpoint whose policy's weights training starts from" in told and "of initial weights, samples and the order" in told
    assert "seconds that a placement may take" in told


@pytest.mark.parametrize("content", ["[1, 2]", "a: [", ""])
def test_a_file_that_is_no_map_is_refused(tmp_path, content):
    (tmp_path / "run.yaml").write_text(content)
    with pytest.raises(ValueError, match=r"run\.yaml: "):
        read_config(tmp_path / "run.yaml")


def test_print_config_prints_every_knob_as_overridden(capsys):
    assert cli.main(["train", "--config", str(PUBLISHED), "--seed=9", "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(PUBLISHED.read_text()) | {"seed": 9}
