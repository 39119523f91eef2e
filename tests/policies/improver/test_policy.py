"""The improver's episodes: what it keeps, what it proposes, that it learns from them, and the checkpoint that comes with the package."""

from __future__ import annotations

from statistics import geometric_mean

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.learners import learner, settings

from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.improve import improve
from gnnplace.baselines.searching.budget import Budget
from gnnplace.config.training import OptimizerConfig
from gnnplace.corpus import clusters, manifest
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.policies.improver.policy import ImproverConfig
from gnnplace.policies.protocol import PolicyShape
from gnnplace.policies.registry import build
from gnnplace.policies.tape import Tape
from gnnplace.portfolio import searches
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.zero_shot import planner
from gnnplace.training.update.rollout import decode, rollout


def policy(rounds=8, **knobs):
    return build(ImproverConfig(width=16, hidden=1, rounds=rounds, drawn=30, **knobs), PolicyShape(), 1, 0)


def episode(posed, made, samples=4, seed=0):
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed))
    return tape, rollout(made, posed, tape, simulate)


def test_an_episode_keeps_what_is_no_worse_and_ends_with_its_best():
    _, steps = episode(chains(4, 5, 3), policy())
    assert len(steps) == 10  # the start, eight moves, the best
    for sample in range(4):
        times = [step.results[sample].step_time_ns for step in steps]
        assert times[-1] == min(times) and times[0] == 20_000
        devices = [step.placements[sample].device for step in steps]
        here = 0
        for now in range(1, 9):  # each move changes the placement at hand: the last one that was no worse
            changed = np.flatnonzero(devices[now] != devices[here])
            assert len(changed) > 0
            here = now if times[now] <= times[here] else here


def test_samples_draw_other_moves_and_their_choice_is_among_those_that_may_help():
    tape, steps = episode(chains(4, 5, 3), policy(), samples=6)
    assert len({step.placements[sample].device.tobytes() for step in steps[1:2] for sample in range(6)}) > 2
    assert [list(step) for step in tape.steps] == [["draws"], *[["move"]] * 8, []]
    assert all(made.log_probability().isfinite().all() for step in tape.steps for made in step.values())


def test_it_starts_on_the_fastest_device_that_holds_everything():
    ops = [op(f"o{i}", 10, persistent_bytes=30) for i in range(4)]
    cluster = equal_gpus(3, memory_bytes=100)
    devices = tuple(gpu.__class__(gpu.name, gpu.kind, 100 + 50 * at, 10**12, 10**12) for at, gpu in enumerate(cluster.devices))
    posed = problem(ComputationGraph.from_ops("held", ops, []), cluster.__class__("larger", devices, cluster.links))
    assert set(policy().reset(posed, 1).best[0].tolist()) == {1}


@pytest.mark.slow
def test_it_learns_from_its_own_episodes():
    posed = chains(3, 6, 3)
    made = policy(rounds=6)
    made.scorer.fit_range(torch.randn(200, len(made.scorer.low)))
    taught = learner([posed], settings(updates=40, optimizer=OptimizerConfig(lr=0.02)), policy=made)

    def mean():
        return np.mean([step.step_time_ns for seed in range(4) for step in episode(posed, made, 8, seed)[1][-1].results])

    before = mean()
    fit(taught)
    assert mean() < 0.93 * before


def test_its_greedy_episode_is_deterministic():
    first, second = (decode(policy(), chains(4, 5, 3), simulate) for _ in range(2))
    assert np.array_equal(first[0].device, second[0].device) and first[1].step_time_ns == second[1].step_time_ns


PROBLEMS = [("two-tower", "k40-4"), ("din", "k40-2"), ("dcn-v2", "v100-8")]  # of lineages that it did not learn from


def test_the_shipped_checkpoint_beats_hill_climbing_at_equal_evaluations_on_graphs_that_it_never_saw():
    ratios = []
    for graph, cluster in PROBLEMS:
        posed = problem(manifest.graph(graph), clusters.cluster(cluster))
        start = Placement(np.full(posed.num_ops, posed.cluster.accelerators[0], np.int32))
        learned = searches.improved(posed, simulate, searches.shipped(), 0, Budget(evaluations=60), start)
        plain = hill_climb(posed, simulate, np.random.default_rng(0), start=start, budget=Budget(evaluations=60))
        times = [result.step_time_ns for result in simulate(posed, [learned, plain])]
        ratios.append(times[0] / times[1])
    assert geometric_mean(ratios) < 0.95, ratios


def test_torch_and_numpy_place_alike_and_numbers_of_evaluations_are_kept():
    posed = problem(manifest.graph("dlrm"), clusters.cluster("k40-2"))
    loaded = planner(searches.SHIPPED, evaluations=20)
    by_numpy = improve(
        posed, simulate, np.random.default_rng(0), budget=Budget(evaluations=20),
        ranks=(searches.shipped(), searches.path_estimate), drawn=searches.LEARNED_DRAWN,
    )  # fmt: skip
    assert np.array_equal(loaded(posed).device, by_numpy.device)
    start = Placement(np.zeros(posed.num_ops, np.int32))
    assert simulate(posed, [loaded.starting(start)(posed)])[0].step_time_ns <= simulate(posed, [start])[0].step_time_ns
