"""What a command line names to learn from replaces what a file of settings names; nothing else does, and what stays is counted."""

import re

import pytest

from gnnplace.complaints import UsageError
from gnnplace.config import files
from gnnplace.training.run import problems

ONE = ("--problems=[[deepfm, k40-2]]",)
TEST = ("--corpus.splits=[test]", "--corpus.clusters=[k40-2]", "--corpus.drawn_clusters=0", "--corpus.synthetic=5")
FILE = """
policy: {kind: unit-placer}
problems: [[a.onnx, k40-2], [b.onnx, k40-2]]
dims: [[batch, 8]]
costs: [a.json, b.json]
"""


def settings(policy, *options):
    return files.read_settings(policy, None, options)


@pytest.mark.parametrize("options", [ONE, ("--problems", "[[deepfm, k40-2]]"), (*ONE, "--corpus.synthetic=9", "--corpus.most_ops=50")])
def test_problems_that_are_named_are_all_there_are(options):
    config = settings("improver", *options)
    assert config.problems == (("deepfm", "k40-2"),) and config.corpus.splits == ()
    assert problems.summary(config) == "trains on 1 problem (1 named); places 1 in the end"


def test_graphs_of_the_corpus_that_are_named_replace_problems_and_keep_the_other_knobs():
    config = settings("hierarchical", *TEST)
    assert config.problems == () and config.corpus.splits == ("test",)
    config = settings("improver", "--corpus.splits=[test]")
    assert config.corpus.synthetic == 600 and config.corpus.most_ops == 9000


def test_both_are_learned_from_where_both_are_named():
    config = settings("improver", *ONE, *TEST)
    assert config.problems == (("deepfm", "k40-2"),) and config.corpus.splits == ("test",)
    assert "(1 named, " in problems.summary(config) and "5 synthetic" in problems.summary(config)


@pytest.mark.parametrize("options", [(), ("--corpus.synthetic=0",), ("--training.updates=3",)])
def test_what_chooses_nothing_replaces_nothing(options):
    assert settings("improver", *options).corpus.splits == ("train", "validation")
    assert settings("hierarchical", *options).problems == (("nmt-2", "k40-2"),)


def test_sizes_and_costs_go_with_their_problems(tmp_path):
    (tmp_path / "own.yaml").write_text(FILE)
    config = files.read_config(tmp_path / "own.yaml", ["--seed=3"])
    assert config.dims == (("batch", 8),) and len(config.costs) == 2
    config = files.read_config(tmp_path / "own.yaml", ONE)
    assert config.dims == () and config.costs == ()
    config = files.read_config(tmp_path / "own.yaml", [*ONE, "--costs=[c.json]"])
    assert config.costs == ("c.json",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--parallelism.micro_batches=0",), "parallelism.micro_batches: 0 is no number of micro-batches; at least 1"),
        (("--parallelism.micro_batches=many",), "parallelism.micro_batches: 'many': input should be a valid integer"),
        (("--parallelism.micro_batches=true",), "parallelism.micro_batches: True is no int"),
        (("--parallelism.copies=apart",), "parallelism.copies: 'apart': input should be 'together', 'free'"),
        (("--parallelism.micro_batches=2", *TEST), "parallelism: synthetic graphs have no gradients to sum over micro"),
        (("--parallelism.micro_batches=2", "--evaluate=measured"), "parallelism.micro_batches: 2: evaluate measured runs a step of one"),
    ],
)  # fmt: skip
def test_steps_of_micro_batches_are_checked(options, message):
    with pytest.raises(UsageError) as caught:
        settings("hierarchical", *ONE, *options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_named_problems_are_steps_of_micro_batches():
    config = settings("hierarchical", *ONE, "--parallelism.micro_batches=3", "--parallelism.copies=free")
    (problem,) = problems.simulated(config, quiet=True)
    assert problem.graph.micro_batches == 3 and problem.graph.copies.placed == "free"


def test_graphs_of_the_corpus_are_steps_of_micro_batches_in_training_and_validation():
    config = settings("hierarchical", *TEST, "--corpus.synthetic=0", "--corpus.most_ops=90", "--validation.splits=[validation]",
                      "--validation.clusters=[k40-2]", "--validation.most_ops=200", "--training.validation_every=5",
                      "--parallelism.micro_batches=2")  # fmt: skip
    trained = problems.simulated(config, quiet=True)
    held_out = problems.selected(config.validation, config.seed, config.parallelism)
    assert trained and held_out and {problem.graph.micro_batches for problem in (*trained, *held_out)} == {2}


def test_problems_are_counted_as_they_are_chosen():
    config = settings("hierarchical", *TEST, "--corpus.lineages=[recommender]", "--validation.splits=[validation]",
                      "--validation.clusters=[k40-2]", "--training.validation_every=5")  # fmt: skip
    number = len(problems.simulated(config, quiet=True))
    held_out = len(problems.selected(config.validation, 0))
    assert problems.summary(config) == (
        f"trains on {number} problems ({number - 5} of the corpus, 5 synthetic); validates with {held_out} others; "
        f"places {number} in the end"
    )


STEPS = (
    "--corpus.splits=[test]",
    "--corpus.clusters=[k40-2]",
    "--corpus.lineages=[recommender]",
    "--corpus.drawn_clusters=0",
    "--corpus.synthetic=0",
)


def test_corpus_graphs_make_steps_of_several_micro_batches_up_to_a_size():
    config = settings("hierarchical", *STEPS, "--corpus.micro_batches=[1, 2]", "--corpus.copies=[together, free]", "--corpus.most_ops=1200")
    chosen = problems.simulated(config, quiet=True)
    assert len(chosen) == sum(map(int, re.findall(r"trains on (\d+)", problems.summary(config))))
    one = {problem.graph.name for problem in chosen if problem.graph.micro_batches == 1}
    two = [problem.graph for problem in chosen if problem.graph.micro_batches == 2]
    assert one and two and {graph.copies.placed for graph in two} == {"together", "free"}
    assert len(two) < 2 * len(one) and max(graph.num_ops for graph in two) <= 1200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--corpus.micro_batches=[0]",), "micro_batches: 0 is below 1"),
        (("--corpus.micro_batches=[2]", "--corpus.copies=[whole]"), "copies: 'whole'"),
        (("--corpus.micro_batches=[2]", "--parallelism.micro_batches=2"), "parallelism.micro_batches: 2, and the corpus names its own"),
    ],
)
def test_micro_batches_of_the_corpus_are_checked(options, message):
    with pytest.raises(UsageError) as caught:
        settings("hierarchical", *STEPS, *options)
    assert message in str(caught.value) and "\n" not in str(caught.value)
