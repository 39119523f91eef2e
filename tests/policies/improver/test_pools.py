"""Learning what moves gain: labels against the simulator, reproducibility, and that it is learned."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.learners import learner, settings
from support.slow import slow

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.policies.improver.config import MovesConfig
from gnnplace.policies.improver.policy import ImproverConfig
from gnnplace.policies.improver.pools import Searched
from gnnplace.policies.protocol import PolicyShape, Practice
from gnnplace.policies.registry import build
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.update.objectives import start

CONFIG = MovesConfig(updates=1, pools=3, drawn=40, lists=1, from_single=0.7)


def ladder(rungs=10, devices=3):
    """Pairs of ops that read each other's outputs: some moves help, many hurt."""
    ops = [op(f"{side}{i}", 50 + 10 * (i % 3), 8) for i in range(rungs) for side in "ab"]
    edges = [(2 * i + s, 0, 2 * i + 2 + t) for i in range(rungs - 1) for s in (0, 1) for t in (0, 1) if s == t or i % 3 == 0]
    return problem(ComputationGraph.from_ops("ladder", ops, edges), equal_gpus(devices))


def pools(posed, seed=0, config=CONFIG):
    return list(Searched(posed, lambda rows: rows[:, 0], config, Practice(simulate, start, np.random.default_rng(seed))).pools())


@pytest.mark.parametrize("seeds", [5, slow(25)])
def test_a_gain_is_the_share_of_the_step_that_a_move_saves(seeds):
    known = {}

    def watched(posed, placements, *, timeline=False, limit_ns=None):
        results = simulate(posed, placements, timeline=timeline, limit_ns=limit_ns)
        if timeline:
            known["step"] = results[0].step_time_ns
        elif limit_ns is not None:
            known.setdefault("gains", []).append(
                [known["step"], *(known["step"] if r.feasible_ns is None else r.feasible_ns for r in results)]
            )
        return results

    found = 0
    for seed in range(seeds):
        known.clear()
        for pool in Searched(ladder(), lambda rows: rows[:, 0], CONFIG, Practice(watched, start, np.random.default_rng(seed))).pools():
            step, *times = known["gains"][-1]
            assert pool.gain == pytest.approx(np.maximum(0, 1 - np.array(times) / step))
            assert len(pool.gain) == len(pool.rows) > 1 and pool.gain.max() > 0 and pool.gain.min() >= 0
            found += 1
    assert found > seeds


def test_the_same_generator_gives_the_same_pools_and_others_give_others():
    first, second, other = (pools(ladder(), seed) for seed in (3, 3, 5))
    assert len(first) > 0 and all(
        np.array_equal(a.gain, b.gain) and np.array_equal(a.rows, b.rows) for a, b in zip(first, second, strict=True)
    )
    assert [pool.gain.sum() for pool in first] != [pool.gain.sum() for pool in other]


def test_where_nothing_fits_or_moves_there_is_nothing_to_learn():
    ops = [op(f"o{i}", 100, persistent_bytes=50) for i in range(4)]
    large = problem(ComputationGraph.from_ops("large", ops, []), equal_gpus(2, memory_bytes=60))
    assert pools(large) == [] and pools(chains(1, 3, 1)) == []


def taught(posed, updates, seed=0, **knobs):
    config = dataclasses.replace(settings(updates=0, **knobs), moves=dataclasses.replace(CONFIG, updates=updates, lr=0.01))
    policy = build(ImproverConfig(width=16, hidden=1), PolicyShape(), 1, seed)
    return learner(posed, config, policy=policy, seed=seed)


def share(policy, posed, seeds=range(100, 112)):
    """The mean share of the best gain of a pool that the policy's first two moves have."""
    found = []
    for seed in seeds:
        for pool in pools(posed, seed):
            order = np.argsort(-policy.scores(pool.rows).detach().numpy())[:2]
            found.append(pool.gain[order].max() / pool.gain.max())
    return float(np.mean(found))


@pytest.mark.slow
def test_it_learns_which_moves_gain_and_every_weight_has_a_gradient():
    posed = [ladder(), ladder(14, 2), chains(5, 4, 3)]
    made = taught(posed, 60)
    before = share(made.policy, ladder(12, 3))
    trainer = fit(made)
    after = share(made.policy, ladder(12, 3))
    assert after > before + 0.1, (before, after)
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in made.policy.parameters())
    assert made.policy.scorer.knows_range and any(name.endswith("/gained") for name in trainer.callback_metrics)


def test_an_update_without_moves_changes_nothing():
    """Adam's momentum of the updates before would move the weights."""
    made = taught([chains(1, 3, 1), ladder()], 4)
    made.policy.scorer.fit_range(torch.from_numpy(np.concatenate([pool.rows for seed in range(3) for pool in pools(ladder(), seed)])))
    order = [made.updates().problems(update)[0] for update in range(4)]
    fit(made)
    steps = made.optimizers(use_pl_optimizer=False).state[made.policy.scorer.layers[0].weight]["step"]
    assert 0 < steps <= order.count(1) == 2


def test_a_last_update_without_moves_does_not_hold_up_the_reinforcement_that_follows():
    config = dataclasses.replace(settings(updates=2), moves=dataclasses.replace(CONFIG, updates=1, drawn=1))  # one move is no choice
    policy = build(ImproverConfig(width=16, hidden=1, rounds=3, drawn=20), PolicyShape(), 1, 0)
    policy.scorer.fit_range(torch.from_numpy(np.concatenate([pool.rows for seed in range(3) for pool in pools(ladder(), seed)])))
    before = policy.scorer.layers[0].weight.clone()
    made = learner([ladder()], config, policy=policy)
    fit(made)
    assert made.updates_done == 3 and not torch.equal(policy.scorer.layers[0].weight, before)


def test_only_a_policy_that_ranks_moves_can_be_told_to():
    config = dataclasses.replace(settings(updates=1), moves=CONFIG)
    with pytest.raises(ValueError, match=r"training\.moves.updates: TablePolicy has no such phase"):
        learner([chains(2, 2, 2)], config)
