"""Several processes train together: the same global batch gives the same update, up to the order of sums, and one best placement."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.learners import settings

from gnnplace import cli
from gnnplace.config.training import CreditConfig
from gnnplace.policies.tape import Share, Tape
from gnnplace.training.run.checkpoint import FILE
from gnnplace.training.update import experience, processes

ROOT = Path(cli.__file__).parents[1]
SMALL = [
    "--problems=[[squeezenet, k40-2], [dlrm, k40-2]]", "--training.problems_per_update=2", "--training.updates=3", "--training.threads=1",
    "--training.greedy_every=2", "--training.checkpoint_every=2", "--trainer.gradient_clip_val=10", "--tracking=none", "-q",
    "--seed=5", "--training.optimizer.eps=0.001",  # no step hangs on gradients that are nothing but rounding
]  # fmt: skip
HIERARCHICAL = ["--policy.groups=8", "--policy.width=8", "--policy.encoder_width=8", "--training.groupings=4", "--training.placements=4"]
RUNS = {
    "hierarchical": [*HIERARCHICAL, "--encoder=gnn", "--training.grouping.updates=2", "--algorithm.self_imitation=0.5"],
    "published": [
        "--settings=published",
        *HIERARCHICAL,
        "--training.groupings=1",
        "--training.mask_infeasible_after=1",
        "--training.optimizer.lr=0.01",
    ],
    "hierarchical, ppo": [*HIERARCHICAL, "--encoder=gnn", "--algorithm=ppo", "--training.grouping.updates=2"],
    "ppo": [
        "--policy=unit-placer",
        "--policy.width=8",
        "--training.warm_start.updates=0",
        "--training.placements=8",
        "--algorithm.kind=ppo",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_learn_what_one_learns(tmp_path, name):
    weights = []
    for number, more in ((1, []), (2, ["--trainer.devices=2", "--trainer.strategy=ddp"])):
        runs = tmp_path / str(number)
        command = [sys.executable, str(ROOT / "train.py"), *SMALL, *RUNS[name], *more, f"--runs={runs}", "--json"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        assert done.returncode == 0, done.stderr
        (folder,) = runs.iterdir()
        printed = json.loads(done.stdout)  # once
        bests = [
            row["step_time_ns"] for problem in printed["problems"] for row in problem["planners"] if row["planner"].startswith("policy")
        ]
        weights.append((load_file(folder / FILE), bests, sorted(path.name for path in folder.iterdir())))
    (alone, best, files), (together, best_together, files_together) = weights
    assert files == files_together and best == best_together
    names = [name for name in alone if name.startswith("state_dict/policy.")]
    assert names and alone.keys() == together.keys()
    for name in names:
        torch.testing.assert_close(together[name], alone[name], rtol=1e-3, atol=1e-5, msg=lambda why, name=name: f"{name}: {why}")


@pytest.mark.parametrize(("groupings", "leading"), [(1, 1), (4, 4), (1, 8), (8, 8)])
def test_a_process_draws_what_a_single_one_would_for_its_samples(groupings, leading):
    samples = 8

    def drawn(of, share):
        tape = Tape("sample", of, torch.Generator().manual_seed(3), noise=0.3, share=share)
        first = tape("shared", torch.zeros(leading if of == samples else max(1, leading // 2), 5, 3))
        return first, tape("own", torch.zeros(of, 4, 3)), tape.steps[0]["own"].noise()

    whole = drawn(samples, Share(0, 1, groupings))
    parts = [drawn(samples // 2, Share(rank, 2, groupings)) for rank in range(2)]
    for rank, (shared, own, noise) in enumerate(parts):
        assert torch.equal(own, whole[1][rank * samples // 2 : (rank + 1) * samples // 2])
        assert torch.equal(noise, whole[2][rank * samples // 2 : (rank + 1) * samples // 2])
        assert torch.equal(shared, whole[0] if leading == 1 else whole[0][rank * leading // 2 : (rank + 1) * leading // 2])


def test_samples_that_cannot_be_divided_are_refused(monkeypatch):
    monkeypatch.setattr(processes, "number", lambda: 3)
    config = settings(samples=8, credit=CreditConfig())
    with pytest.raises(ValueError, match=r"groupings x placements \(1 x 8\) can't be divided among 3 processes"):
        experience.share(config)
