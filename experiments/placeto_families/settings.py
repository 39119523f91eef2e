"""What is trained for how long, and how much each planner may evaluate."""

from __future__ import annotations

from typing import Literal

from experiments import training
from experiments.encoders import transfer
from gnnplace.config.run import RunConfig

PolicyName = Literal["placeto", "hierarchical"]

EPISODES, GROUPS, SAMPLES = 8, 16, 16  # sampled of a test member; visits of an episode; samples of an update
UPDATES, OWN_UPDATES = 200, 40  # on training members, and on the graph itself
EVALUATIONS = EPISODES * (GROUPS + 1)  # of a test member: an episode evaluates its start and every visit
OWN_EVALUATIONS = (OWN_UPDATES * SAMPLES + 1) * (GROUPS + 1)  # with the greedy placement at the end
PLACETO = (  # changes of the tuned settings, chosen on validation members (README, Attempts)
    f"--policy.groups={GROUPS}", "--policy.rounds=4", f"--training.placements={SAMPLES}", "--algorithm.self_imitation=0",
    "--training.credit.gamma=0", "--training.credit.normalise=false", "--training.optimizer.lr=0.005",
    "--training.exploration.entropy_start=0.05", "--training.exploration.entropy_end=0.001", "--training.greedy_every=1000000",
)  # fmt: skip
HIERARCHICAL = ("--training.updates=300", "--training.grouping.updates=1000")


def config(policy: PolicyName, seed: int, updates: int = UPDATES) -> RunConfig:
    """A run: Placeto's, or that of the hierarchical policy as `experiments/encoders` transfers it with the paper's features."""
    if policy == "hierarchical":
        return transfer.config("paper, indices", (f"--seed={seed}", *HIERARCHICAL))
    return training.config_of("placeto", "tuned", (f"--seed={seed}", f"--training.updates={updates}", *PLACETO))
