"""The learner through real Lightning: the sign, a known optimum, updates that must change nothing, one call for all samples."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.learners import ignore, learner, settings

from gnnplace.costs.roofline import problem as roofline
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.training.fit import fit


def skip_saving(learner):
    """A saver that saves nothing."""


def one_op(fast: int):
    """One op on two devices; it lasts 100 ns on device `fast`, 1000 ns on the other."""
    times = {"gpu:0": 1000, "gpu:1": 1000, f"gpu:{fast}": 100}
    only = dataclasses.replace(op("a"), time_ns=times)
    return roofline(ComputationGraph.from_ops("one", [only], []), equal_gpus(2))


@pytest.mark.parametrize("advantage", ["leave-one-out", "moving-average"])
@pytest.mark.parametrize("fast", [0, 1])
def test_one_update_makes_the_faster_placement_more_probable(fast, advantage):
    taught = learner([one_op(fast)], settings(updates=1, advantage=advantage))
    fit(taught, skip_saving)
    probability = torch.softmax(taught.policy.logits, dim=-1)[0]
    assert probability[fast] > 0.5 > probability[1 - fast]


def test_learning_reaches_the_optimum_that_enumeration_finds():
    times = [{"gpu:0": 100 + 900 * (i < 3), "gpu:1": 100 + 900 * (i >= 3)} for i in range(6)]
    ops = [dataclasses.replace(op(f"o{i}", size=10), time_ns=time) for i, time in enumerate(times)]
    of = roofline(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(5)]), equal_gpus(2))
    everything = [Placement(np.array(devices, dtype=np.int32)) for devices in itertools.product(range(2), repeat=6)]
    optimum = min(result.step_time_ns for result in simulate(of, everything))
    taught = learner([of], settings(updates=60, samples=16))
    fit(taught, skip_saving)
    assert taught.decode(0).feasible_ns == taught.best.found[0].step_time_ns == optimum == 6 * 100 + 10


def test_an_update_without_a_counted_sample_changes_nothing():
    of = chains(2, 2, 2)
    calls = []

    def all_infeasible_after_three(problem, placements, *, timeline=False):
        calls.append(len(placements))
        results = simulate(problem, placements)
        return results if len(calls) <= 3 else tuple(dataclasses.replace(result, infeasible="told so") for result in results)

    config = settings(updates=3, advantage="moving-average", mask_infeasible_after=0)
    config = dataclasses.replace(config, greedy_every=1000)
    counted, more = learner([of], config, evaluate=all_infeasible_after_three), dataclasses.replace(config, updates=6)
    fit(counted, skip_saving)
    weights, average = counted.policy.logits.clone(), counted.moving_average.average.clone()
    calls.clear()
    longer = learner([of], more, evaluate=all_infeasible_after_three)
    fit(longer, skip_saving)
    assert calls == [8] * 6  # one call an update, with all its samples
    assert torch.equal(longer.policy.logits, weights) and torch.equal(longer.moving_average.average, average)
    adam = longer.optimizers(use_pl_optimizer=False)[1].state[longer.policy.logits]
    assert adam["step"] == 3


def test_infeasible_samples_count_before_the_cut_off():
    of = chains(1, 1, 2)

    def device_1_is_infeasible(problem, placements, *, timeline=False):
        results = simulate(problem, placements)
        pairs = zip(placements, results, strict=True)
        return tuple(dataclasses.replace(r, infeasible="told so") if p.device[0] == 1 else r for p, r in pairs)

    config = dataclasses.replace(settings(updates=20, mask_infeasible_after=20), reward=dataclasses.replace(settings().reward, kind="sqrt"))
    taught = learner([of], config, evaluate=device_1_is_infeasible)
    fit(taught, skip_saving)
    assert torch.softmax(taught.policy.logits, dim=-1)[0, 0] > 0.9


def test_a_warm_start_imitates_the_teacher_and_then_has_a_fresh_adam():
    of = chains(2, 2, 2)
    teacher = Placement(np.array([0, 0, 1, 1], dtype=np.int32))
    taught = learner([of], settings(updates=0, warm_start=40), teacher=teacher)
    fit(taught, skip_saving)
    probability = torch.softmax(taught.policy.logits, dim=-1)[torch.arange(4), torch.tensor([0, 0, 1, 1])]
    assert (probability > 0.9).all()
    imitation, reinforcement = taught.optimizers(use_pl_optimizer=False)
    assert imitation.state and not reinforcement.state


def test_the_best_placement_is_written_whenever_it_improves_and_only_then():
    written = []
    taught = learner([chains(3, 4, 3)], settings(updates=20, samples=4), write=lambda *best: written.append(best))
    fit(taught, skip_saving)
    times = [result.step_time_ns for _, _, result, _ in written]
    assert times == sorted(set(times), reverse=True) and len(times) > 1
    problem, placement, result, _ = written[-1]
    again = simulate(taught.lessons[problem].problem, [placement])[0].step_time_ns
    assert again == taught.best.found[0].step_time_ns == result.step_time_ns


def test_metrics_name_the_problem_and_are_consistent():
    taught = learner([chains(2, 3, 2)], settings(updates=2))
    fit(taught, skip_saving)
    metrics = {key.partition("/")[2] or key: value for key, value in taught.metrics.items()}
    assert metrics["best_ns"] <= metrics["best_sample_ns"] <= metrics["median_ns"] and metrics["infeasible"] == 0
    assert metrics["ops on gpu:0"] + metrics["ops on gpu:1"] == 6
    assert 0 <= metrics["entropy"] <= np.log(2) + 1e-6 and metrics["gradient_norm"] > 0 and metrics["greedy_ns"] >= metrics["best_ns"]
    assert all(key.startswith("chains-2x3.gpus-2/") for key in taught.metrics if key not in ("seconds", "gradient_norm"))


def test_two_problems_keep_their_own_averages_and_bests():
    config = dataclasses.replace(settings(updates=10, advantage="moving-average"), problems_per_update=2)
    taught = learner([chains(2, 2, 2), chains(2, 2, 2, time_ns=10**6)], config, write=ignore)
    fit(taught, skip_saving)
    assert taught.best.found[0].step_time_ns * 10 < taught.best.found[1].step_time_ns
    fast, slow = taught.moving_average.average
    assert fast > slow


def test_self_imitation_makes_the_best_own_placement_more_probable():
    twins = dataclasses.replace(op("a"), time_ns={"gpu": 100}), dataclasses.replace(op("b"), time_ns={"gpu": 100})
    of = roofline(ComputationGraph.from_ops("twins", list(twins), []), equal_gpus(2))
    taught = learner([of], settings(updates=5, self_imitation=10.0, lr=0.1))
    fit(taught, skip_saving)
    assert taught.best.found[0].step_time_ns == 100
    best = torch.from_numpy(taught.best.found[0].placement.device.astype(np.int64))
    probability = torch.softmax(taught.policy.logits, dim=-1).gather(1, best[:, None])
    assert (probability > 0.5).all()


def test_the_learning_rate_decays_linearly_to_its_last_update():
    config = settings(updates=5, lr=0.2)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, lr_decay=0.5))
    rates = []

    def note(taught):
        rates.append(taught.optimizers(use_pl_optimizer=False)[1].param_groups[0]["lr"])

    fit(learner([chains(2, 2, 2)], dataclasses.replace(config, checkpoint_every=1)), note)
    assert rates[:5] == pytest.approx([0.2, 0.175, 0.15, 0.125, 0.1])
