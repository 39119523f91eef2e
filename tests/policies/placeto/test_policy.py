"""Placeto's episodes: what each visit sees and moves, what it is worth, that it learns, and the groupings and starts of its knobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.learners import learner, settings
from support.slow import slow

import gnnplace as gp
from gnnplace.config.algorithms import PpoConfig
from gnnplace.config.training import CreditConfig, ExplorationConfig, OptimizerConfig, RewardConfig
from gnnplace.costs.roofline import problem as roofline
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.policies.clustering import within_passes
from gnnplace.policies.placeto import network as placeto_network
from gnnplace.policies.placeto.graph import columns, placed_graph, shuffled, standing, start_times, unit_facts
from gnnplace.policies.placeto.policy import PlacetoConfig
from gnnplace.policies.protocol import Continues, asks
from gnnplace.policies.registry import build
from gnnplace.policies.tape import Tape
from gnnplace.problems import NS_PER_S
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.update import reward
from gnnplace.training.update.algorithms.imitate import self_imitate
from gnnplace.training.update.credit import returns
from gnnplace.training.update.rollout import best_sample, decode, replay, rescored, rollout
from gnnplace.units.units import units

IMPROVEMENT = CreditConfig(returns="improvement", baseline="leave-one-out", normalise=True)


def placeto(posed, groupings=1, **knobs):
    config = PlacetoConfig(**{"units": "ops", "groups": 16, "rounds": 2} | knobs)
    return build(config, config.shape([posed]), groupings, 0)


def episode(posed, made, samples=4, seed=0):
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed))
    return tape, rollout(made, posed, tape, simulate)


def two_branches():
    """a feeds b and c, which feed d; b lasts three times as long and keeps 60 bytes."""
    ops = [op("a", 10, 100), op("b", 30, 50, persistent_bytes=60), op("c", 10, 200), op("d", 20, 0)]
    return roofline(ComputationGraph.from_ops("branches", ops, [(0, 0, 1), (0, 0, 2), (1, 0, 3), (2, 0, 3)]), equal_gpus(2))


def graph_of(posed, grouping, groups):
    facts = unit_facts(posed, units(posed.graph, "ops"))
    return facts, placed_graph(facts, torch.tensor([grouping]), groups, "sum")


def test_each_visit_moves_its_group_alone_and_the_end_is_what_was_chosen():
    posed = chains(3, 3, 3)
    tape, steps = episode(posed, placeto(posed))
    assert len(steps) == 10 and [list(step) for step in tape.steps] == [[], *[["device"]] * 9]
    assert all(len(step.results) == 4 for step in steps)
    assert all(set(placement.device.tolist()) == {0} for placement in steps[0].placements)
    of = placeto(posed).reset(posed, 1).constants
    order = [int(np.flatnonzero(of.units.unit == unit)[0]) for unit in of.graph.order[0].tolist()]
    for sample in range(4):
        for turn, visited in enumerate(order):
            changed = np.flatnonzero(steps[turn].placements[sample].device != steps[turn + 1].placements[sample].device)
            assert set(changed.tolist()) <= {visited}
        chosen = [int(step["device"].choice()[sample]) for step in tape.steps[1:]]
        assert steps[-1].placements[sample].device[order].tolist() == chosen


def test_activations_that_are_not_kept_change_nothing(monkeypatch):
    posed = chains(3, 3, 3)
    made = placeto(posed)
    tape, steps = episode(posed, made)
    learned, passes = [], []
    made.network.register_forward_pre_hook(lambda *_: passes.append(1))
    for most, times in ((9 * 9 * 4 * 2, 1), (9 * 9 * 4 * 2 - 1, 2)):  # visits, groups, samples, rounds
        monkeypatch.setattr(placeto_network, "MOST_ROWS", most)
        made.zero_grad()
        passes.clear()
        log_probability = replay(made, posed, tape, steps).tape.log_probability()
        log_probability.sum().backward()
        assert len(passes) == 9 * times
        learned.append([log_probability.detach(), *[weight.grad.clone() for weight in made.parameters()]])
    torch.testing.assert_close(learned[1], learned[0])


def test_what_a_visit_sees_by_hand():
    posed = two_branches()
    facts, graph = graph_of(posed, [0, 1, 2, 3], 4)
    assert graph.order.tolist() == [[0, 1, 2, 3]]
    device, began = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 1]]), torch.tensor([[0.0, 10, 10, 40], [0, 10, 40, 50]])
    seen = columns(graph, device, 2, began, True)
    assert seen.shape == (1, 4, 2, 8)
    by_sample = seen[0].transpose(0, 1)
    kept = facts.bytes[:, 1] / facts.bytes[:, 1].max()
    for sample, last in enumerate(([-1 / 3, 0, 0, 1], [-1, -0.75, 0, 0.25])):
        work, start, produced, visited, current, memory = by_sample[sample, :, :6].T
        torch.testing.assert_close(work, torch.tensor([1 / 3, 1, 1 / 3, 2 / 3]))
        torch.testing.assert_close(produced, torch.tensor([0.5, 0.25, 1, 0]))
        assert visited.tolist() == [1, 1, 0, 0] and current.tolist() == [0, 0, 1, 0]
        torch.testing.assert_close(start, torch.tensor(last))
        torch.testing.assert_close(memory, kept)
        assert by_sample[sample, :, -2:].argmax(-1).tolist() == device[sample].tolist()
    assert columns(graph, device, 2, None, False).shape == (1, 4, 2, 6)


def test_work_is_that_of_the_device_where_a_group_stands():
    ops = [op("a", 10), op("b", 10)]
    ops = [replace(each, time_ns={"gpu:0": 10, "gpu:1": 40}) if each.name == "b" else each for each in ops]
    posed = roofline(ComputationGraph.from_ops("uneven", ops, [(0, 0, 1)]), equal_gpus(2))
    _, graph = graph_of(posed, [0, 1], 2)
    seen = columns(graph, torch.tensor([[0, 0], [0, 1]]), 0, None, False)[0, :, :, 0]
    torch.testing.assert_close(seen, torch.tensor([[1, 0.25], [1, 1]]))


def test_start_times_are_those_of_a_groups_first_op():
    posed = two_branches()
    facts, graph = graph_of(posed, [0, 1, 1, 2], 4)  # the last group is empty
    (result,) = simulate(posed, [Placement(np.zeros(4, np.int32))], timeline=True)
    assert start_times(graph, facts, 2, [result, result])[1].tolist() == [0, 10, result.timeline.start_ns[3], 0]
    assert start_times(graph, facts, 2, None).tolist() == [[0] * 4] * 2


def test_empty_groups_come_last_and_have_no_choice():
    posed = chains(2, 2, 2)
    _, graph = graph_of(posed, [3, 3, 1, 1], 5)
    assert graph.order[0, :2].sort().values.tolist() == [1, 3]
    assert graph.allowed[0, [0, 2, 4]].tolist() == [[True, False]] * 3 and graph.allowed[0, [1, 3]].all()
    orders = {tuple(shuffled(graph, torch.tensor([seed])).order[0].tolist()) for seed in range(8)}
    assert {order[:2] for order in orders} == {(1, 3), (3, 1)} and {order[2:] for order in orders} == {(0, 2, 4)}


def test_a_group_starts_where_most_of_its_work_stands():
    posed = two_branches()
    facts, graph = graph_of(posed, [0, 1, 1, 1], 2)
    assert standing(graph, facts, torch.tensor([1, 0, 1, 0])).tolist() == [[1, 0]]


def test_groups_have_no_gaps_and_small_graphs_are_not_cut():
    posed = chains(5, 8, 2)
    assert placeto(posed, groups=40).reset(posed, 1).constants.graph.grouping[0].tolist() == list(range(40))
    graph = placeto(posed, groups=7).reset(posed, 1).constants.graph
    assert graph.relatives.used.all() and 1 < graph.order.shape[1] <= 7


def test_groups_keep_to_a_pass_of_training():
    posed = gp.problem("rnnlm-2", cluster="k40-2")
    coarse, phase = units(posed.graph, "coarse"), posed.graph.phase
    group = within_passes(posed, coarse, 64)
    work = np.zeros((64, len(phase.values)))
    np.add.at(work, (group[coarse.unit], phase.index), posed.time_ns.min(axis=1))
    shares = work.max(1)[work.sum(1) > 0] / work.sum(1)[work.sum(1) > 0]
    assert len(shares) > 32 and np.median(shares) == 1
    graph = placeto(posed, units="coarse", groups=64).reset(posed, 1).constants.graph
    before = graph.relatives.ancestors[0]
    assert (before & before.T).float().mean() < 0.2 < before.float().mean()  # nearly all would be both, were passes mixed


def test_improvements_add_up_to_what_the_rest_of_the_episode_saves():
    """With gamma 1 the return of a visit is the step time before it minus that of the last placement."""
    posed = chains(3, 3, 3, time_ns=10**6)
    _, steps = episode(posed, placeto(posed, start="random"))
    config = RewardConfig("seconds", 2.0)
    times = np.array([[result.step_time_ns for result in step.results] for step in steps]) / NS_PER_S
    worth = [[reward.of(result, config, 1, posed.cluster.memory_bytes) for result in step.results] for step in steps]
    made = returns(torch.tensor(worth, dtype=torch.float64), "improvement", 1.0).numpy()
    np.testing.assert_allclose(made[1:], times[:-1] - times[-1], atol=1e-12)
    np.testing.assert_allclose(made[0], -times[-1], atol=1e-12)
    assert len(np.unique(times)) > 2


def two_speeds(fast):
    """One op on two devices; it lasts 100 ns on device `fast`, 1000 ns on the other."""
    only = replace(op("a"), time_ns={"gpu:0": 1000, "gpu:1": 1000, f"gpu:{fast}": 100})
    return roofline(ComputationGraph.from_ops("one", [only], []), equal_gpus(2))


@pytest.mark.parametrize("credit", [IMPROVEMENT, CreditConfig(baseline="recent-mean", normalise=False)], ids=["improvement", "recent-mean"])
@pytest.mark.parametrize("fast", [0, 1])
def test_one_update_makes_the_faster_device_more_probable(fast, credit):
    posed = two_speeds(fast)
    made = placeto(posed, start="random")

    def preferred():
        tape = Tape("argmax", 1)
        rollout(made, posed, tape, simulate)
        return float(torch.softmax(tape.steps[1]["device"].logits[0][0], -1)[fast])

    before = preferred()
    fit(learner([posed], settings(updates=1, lr=0.01, samples=16, credit=credit), policy=made))
    assert preferred() > before


@pytest.mark.parametrize("knobs", [slow({"evaluates": "last"}), slow({"start": "random"}), slow({"order": "random", "sums": "mean"})])
def test_other_knobs_find_a_known_optimum(knobs):
    posed = chains(2, 2, 2)
    made = placeto(posed, **knobs)
    credit = IMPROVEMENT if made.evaluates == "every" else CreditConfig()
    fit(learner([posed], settings(updates=30, samples=12, credit=credit, lr=0.01, greedy_every=100), policy=made))
    placement, result, _ = decode(made, posed, simulate)
    assert result.step_time_ns == 2000 and len(set(placement.device.tolist())) == 2


def test_a_grouper_learns_from_what_the_last_placement_takes():
    posed = chains(2, 3, 2)
    made = placeto(posed, groupings=4, grouper="learned", groups=3, encoder_width=8, hidden=8)
    tape, steps = episode(posed, made, samples=8)
    assert tape.steps[0]["group"].choice().shape == (4, 6) and len(steps) == 4
    assert [step["device"].choice().shape for step in tape.steps[1:]] == [(8,)] * 3
    for sample in range(8):  # who shares a group shares a device
        group = tape.steps[0]["group"].choice()[sample // 2].numpy()[units(posed.graph, "ops").unit]
        device = steps[-1].placements[sample].device
        assert all(len(set(device[group == number].tolist())) <= 1 for number in range(3))
    scored = replay(made, posed, tape, steps).tape
    scored.by_step(lambda decisions: decisions.log_probability())[0].sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in made.grouping_parameters())
    assert not any(weight.grad.any() for weight in made.network.parameters())


def test_parts_of_a_batch_replay_to_what_they_were():
    posed = chains(2, 3, 2)
    made = placeto(
        posed, groupings=4, grouper="learned", groups=5, encoder_width=8, hidden=8, order="random", start="random", start_time=True
    )
    tape, steps = episode(posed, made, samples=8)
    whole = tape.by_decision(lambda decisions: decisions.log_probability())
    for rows in (slice(0, 2), slice(4, 8)):
        part = replay(made, posed, tape, steps, rows).tape
        torch.testing.assert_close(part.by_decision(lambda decisions: decisions.log_probability()), whole[rows])


def test_it_learns_with_ppo_from_groups_that_it_learns():
    posed = chains(2, 3, 2)
    made = placeto(posed, groupings=4, grouper="learned", groups=4, encoder_width=8, hidden=8)
    config = settings(updates=2, samples=2, groupings=4, credit=IMPROVEMENT, optimizer=OptimizerConfig(lr=0.01))
    before = [weight.clone() for weight in made.parameters()]
    fit(learner([posed], config, algorithm=PpoConfig(epochs=2, minibatches=2), policy=made))
    assert all(weight.isfinite().all() for weight in made.parameters())
    assert sum(not torch.equal(*pair) for pair in zip(before, made.parameters(), strict=True)) > 10


def test_its_grouper_imitates_a_clustering():
    posed = chains(2, 8, 2)
    made = placeto(posed, grouper="learned", groups=2, encoder_width=16)
    target = made.grouping_target(posed)["group"]
    tape = Tape.of({"group": target}, 1)
    assert torch.equal(made.group(made.reset(posed, 1), tape), target) and tape.log_probability() < 0


def test_training_may_continue_from_the_best_so_far():
    posed = chains(2, 3, 2)
    assert isinstance(placeto(posed), Continues)
    best = Placement(np.array([0, 0, 0, 1, 1, 1], dtype=np.int32))
    for start, devices in (("best", best.device.tolist()), ("fastest", [0] * 6)):
        made = placeto(posed, start=start)
        made.continue_from(posed, best)
        tape, steps = episode(posed, made)
        assert [placement.device.tolist() for placement in steps[0].placements] == [devices] * 4
        torch.testing.assert_close(replay(made, posed, tape, steps).tape.log_probability(), tape.log_probability())
    made = placeto(posed, start="best")
    taught = learner([posed], settings(updates=3, credit=IMPROVEMENT, optimizer=OptimizerConfig(lr=0.01)), policy=made)
    fit(taught)
    _, steps = episode(posed, made)
    assert (
        steps[0].results[0].step_time_ns <= 6000
        and steps[0].results[0].step_time_ns < simulate(posed, [Placement(np.zeros(6, np.int32))])[0].step_time_ns
    )


def test_what_came_after_the_best_placement_is_not_imitated():
    posed = chains(2, 2, 2)
    made = placeto(posed)
    tape, steps = episode(posed, made)
    best = best_sample(steps)
    assert best.result.step_time_ns == min(result.step_time_ns for step in steps for result in step.results)
    assert steps[best.step].placements[best.sample] is best.placement
    choices = tape.choices(best.sample)
    scored = rescored(made, posed, Tape.recorded(choices), simulate).by_step(lambda decisions: decisions.log_probability())
    for count in range(1, 6):
        torch.testing.assert_close(self_imitate(made, posed, choices[:count], simulate, True), -scored[:count].sum())


def test_entropy_is_of_devices_and_random_starts_are_uniform():
    posed = chains(2, 3, 2)
    tape, _ = episode(posed, placeto(posed, start="random", order="random"))
    assert list(tape.steps[0]) == ["order", "start"] and not tape.steps[0]["start"].logits[0].any()
    made = placeto(posed, start="random")
    before = [weight.clone() for weight in made.parameters()]
    exploration = ExplorationConfig(entropy_start=1.0, entropy_end=1.0, entropy_of=("start",))
    equal = CreditConfig(returns="improvement", floor=1e12)
    fit(learner([posed], settings(updates=1, credit=equal, exploration=exploration), policy=made))
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(before, made.parameters(), strict=True))


def test_what_it_asks_for_follows_its_knobs():
    posed = chains(2, 2, 2)
    assert asks(placeto(posed)) == ("none", "every", 0)
    assert asks(placeto(posed, evaluates="last", start_time=True)) == ("timeline", "last", 0)
    _, steps = episode(posed, placeto(posed, evaluates="last"))
    assert [len(step.results) for step in steps] == [0, 0, 0, 0, 4]


def test_what_does_not_go_together_is_refused():
    posed = chains(2, 2, 2)
    with pytest.raises(
        ValueError, match=r"training\.credit\.returns: 'improvement' is of policies that have every step evaluated, and Placeto"
    ):
        learner([posed], settings(credit=IMPROVEMENT), policy=placeto(posed, evaluates="last"))
    with pytest.raises(ValueError, match=r"training\.grouping\.updates: a policy with policy\.grouper 'clustered' has no groups to learn"):
        placeto(posed).grouping_target(posed)
