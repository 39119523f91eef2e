"""A policy brings a phase of its own: it is prepared once, comes before the policy's own samples, and counts as every phase does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning import Callback
from support.graphs import chains
from support.learners import TablePolicy, learner, settings

from gnnplace.placement import Placement
from gnnplace.policies.protocol import BringsPhases
from gnnplace.training.run.assemble import fit


class Pulls:
    """Pulls all logits of device 0 up; teaches nothing where `teaches` is false."""

    name, lr = "pull", 0.1

    def __init__(self, policy, updates, teaches):
        self.policy, self.updates, self.teaches, self.draws, self.prepared = policy, updates, teaches, [], 0

    def prepare(self, problems, practice):
        self.prepared += 1

    def loss(self, problem, practice):
        self.draws.append(float(practice.generator.random()))
        start = practice.starts(problem, practice.evaluate, np.random.default_rng(0), 2)
        assert len(start.device) == problem.num_ops
        return (-self.policy.logits[:, 0].mean() if self.teaches else None), {"pulled": 1.0}


class PulledPolicy(TablePolicy):
    def __init__(self, updates, teaches=True):
        super().__init__(4, 2)
        self.phase = Pulls(self, updates, teaches)

    def objectives(self, training):
        return (self.phase,)


class Lives(Callback):
    def __init__(self):
        self.rates, self.phases = [], []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.phases.append(batch.phase.name)
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


@pytest.mark.parametrize("updates", [0, 3])
def test_its_updates_come_before_the_samples_and_are_counted(updates):
    policy, lives = PulledPolicy(updates), Lives()
    made = learner([chains(2, 2, 2)], settings(updates=2, warm_start=1), policy=policy, teacher=Placement(np.zeros(4, np.int32)))
    assert isinstance(policy, BringsPhases) and made.learning.all_updates == len(made.updates()) == 3 + updates
    fit(made, callbacks=[lives])
    assert lives.phases == ["warm_start"] + ["pull"] * updates + ["reinforcement"] * 2
    assert policy.phase.prepared == 1 and len(set(policy.phase.draws)) == updates and made.updates_done == 3 + updates


def test_an_update_that_teaches_nothing_changes_nothing():
    policy = PulledPolicy(2, teaches=False)
    fit(learner([chains(2, 2, 2)], settings(updates=0), policy=policy))
    assert torch.equal(policy.logits, torch.zeros(4, 2))
    policy = PulledPolicy(2)
    fit(learner([chains(2, 2, 2)], settings(updates=0), policy=policy))
    assert (policy.logits[:, 0] > 0).all() and (policy.logits[:, 1] == 0).all()
