"""What MLflow says of a run besides knobs and curves."""

from pathlib import Path

import pytest
from support.graphs import chains

from gnnplace.bounds.bounds import lower_bound
from gnnplace.config import files
from gnnplace.portfolio.comparison import candidates
from gnnplace.portfolio.planners import planners
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import notes
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Lesson


def test_a_description_says_who_learns_what_and_the_commands_that_go_on():
    config = files.read_settings("hierarchical", None, ["--problems=[[net.onnx, '2x l4, pcie4']]", "--seed=3", "--training.updates=7"])
    phases = Learning(config.training, config.algorithm).phases
    said = notes.description(config, Path("runs/a-1"), [Lesson(chains(2, 3, 2), 1, label="net.l4")], phases)
    assert said.startswith("**hierarchical (paper)** learns from net.l4 (simulated), seed 3: 500 updates of grouping, 7 updates of reinf")
    assert "`gnnplace place net.onnx --cluster '2x l4, pcie4' --checkpoint runs/a-1/checkpoint.safetensors`" in said
    assert "`gnnplace report runs/a-1 -o trainings.html`" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/usr/bin/gnnplace", "train", "--policy", "a b"], "gnnplace train --policy 'a b'"),
        (["/x/gnnplace/__main__.py", "train"], "gnnplace train"),
        (["train.py", "--encoder", "gnn"], "train.py --encoder gnn"),
    ],
)
def test_the_source_is_the_command(arguments, said):
    assert notes.source(arguments) == said


def test_baselines_are_metrics_and_the_policys_own_rows_are_not():
    problem = chains(2, 3, 2)
    gpu = planners(problem, simulate, 0)["gpu"]
    rows = candidates(problem, {"policy, greedy": gpu, "gpu": gpu, "name of [another]: x": gpu}, "critical-path")
    time = float(rows[0].step_time_ns)
    assert notes.baselines(Lesson(problem, 9, label="chains.pair"), rows) == {
        "chains.pair/bound_ns": float(lower_bound(problem)),
        "chains.pair/one_device_ns": 9.0,
        "chains.pair/best_baseline_ns": time,
        "chains.pair/baseline gpu_ns": time,
        "chains.pair/baseline name of _another__ x_ns": time,
    }
