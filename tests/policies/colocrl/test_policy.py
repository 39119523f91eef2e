"""ColocRL: what is placed together, what replay scores, the sign of an update, and learning of known optima."""

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus
from support.learners import learner, settings
from support.scores import perturb, placed_by_hand
from support.slow import slow, thorough

from gnnplace.config.files import read_settings
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.policies import registry
from gnnplace.policies.colocrl.policy import ColocRLConfig, colocation
from gnnplace.policies.protocol import Imitates
from gnnplace.policies.tape import Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.testing import restricted
from gnnplace.training.run.assemble import fit
from gnnplace.training.update.reward import INVALID
from gnnplace.training.update.rollout import greedy, replay, rollout


def placer(of, units="ops", width=16, seed=0, **knobs):
    config = ColocRLConfig(units=units, width=width, **knobs)
    return registry.build(config, config.shape([of]), 1, seed)


def specialists(count=8):
    """A chain of two kinds of op; each device is five times faster at one of them: the optimum parts the kinds, without memory or load."""
    ops = [Op(f"o{i}", "AB"[i % 2], (Output(10),), time_ns={f"gpu:{i % 2}": 10**8, f"gpu:{1 - i % 2}": 5 * 10**8}) for i in range(count)]
    return problem(ComputationGraph.from_ops("specialists", ops, [(i, 0, i + 1) for i in range(count - 1)]), equal_gpus(2))


def branches(count=3, length=4):
    """Branches of three layers that part behind a stem, each with a scope of its own."""
    names = [f"branch_{branch}/{layer}" for branch in range(count) for layer in range(length)]
    ops = [Op("stem", "Op", (Output(8),), layer="stem", time_ns={"gpu": 10})]
    ops += [Op(name, "Op", (Output(8),), layer=name, time_ns={"gpu": 10**8}) for name in names]
    edges = [(0, 0, 1 + branch * length) for branch in range(count)]
    edges += [(1 + branch * length + i, 0, 2 + branch * length + i) for branch in range(count) for i in range(length - 1)]
    return problem(ComputationGraph.from_ops("branches", ops, edges), equal_gpus(count))


def sampled(policy, of, samples, seed=0):
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed))
    return tape, rollout(policy, of, tape, None)[-1].placements


def test_groups_are_placed_in_topological_order_and_their_ops_together():
    of = branches()
    tape, placements = sampled(placer(of, "colocated"), of, 5)
    chosen = tape.steps[0]["device"].choice()
    assert chosen.shape == (5, 4) and len(tape.steps[0]["device"].logits) == 4
    for placement, device in zip(placements, chosen.tolist(), strict=True):
        assert placement.device.tolist() == [device[0]] + [device[1 + branch] for branch in range(3) for _ in range(4)]


@pytest.mark.parametrize("knobs", [{}, {"bidirectional": True, "bound": 3.0}])
def test_replay_scores_the_sampled_devices_by_the_placers_softmax(knobs):
    """Under other weights than those that sampled, a sample's log-probability is the sum over groups of its devices' log-softmax."""
    of = specialists()
    policy = placer(of, **knobs)
    tape, _ = sampled(policy, of, 4)
    perturb(policy)
    encoded = policy.placer.encode(policy.encoder(policy.reset(of, 4).groups)[None])
    scored = replay(policy, of, tape).tape.log_probability()
    assert (scored - tape.log_probability()).abs().min() > 1e-3
    torch.testing.assert_close(scored, placed_by_hand(policy.placer, encoded, tape.steps[0]["device"]), rtol=1e-5, atol=1e-4)


def test_logits_are_the_networks_own_unless_bounded():
    of = specialists()
    free, bounded = placer(of).placer, placer(of, bound=3.0).placer
    assert free.squash(torch.tensor(50.0)) == 50
    assert float(bounded.squash(torch.tensor(50.0))) == pytest.approx(3) and float(bounded.squash(torch.tensor(0.01))) == pytest.approx(
        0.01, rel=1e-3
    )


def test_the_encoder_reads_forwards_alone_unless_told():
    of = specialists()
    rows = torch.randn(1, 8, placer(of).encoder.width)
    for knobs, same in (({}, True), ({"bidirectional": True}, False)):
        net = placer(of, **knobs).placer
        other = rows.clone()
        other[:, -1] += 1
        assert net.encode(rows).memory[:, 0].equal(net.encode(other).memory[:, 0]) == same


@pytest.mark.parametrize("seed", [slow(0), thorough(1), thorough(2)])
def test_branches_spread_over_the_devices(seed):
    """As many equal GPUs as branches: the optimum has one each, and the autoregressive decoder can break the symmetry."""
    of = branches()
    policy = placer(of, "colocated", seed=seed)
    fit(learner([of], settings(updates=150, lr=1e-2, baseline="moving-average", greedy_every=1000), policy=policy))
    assert simulate(of, [greedy(policy)(of)])[0].step_time_ns < 1.01 * 4 * 10**8


def test_metis_makes_as_many_groups_as_the_rules_of_work_alike():
    of = branches()
    rules, parts = colocation(of, "colocated"), colocation(of, "metis")
    assert parts.num_units == rules.num_units == 4
    assert np.bincount(parts.unit).max() <= 5
    assert colocation(of, "readers").num_units == 4 and colocation(of, "ops").num_units == of.num_ops


@pytest.mark.parametrize("units", ["colocated", "readers", "ops", "coarse", "metis"])
def test_every_rule_keeps_ops_where_they_may_stand(units):
    of = restricted()
    for placement in sampled(placer(of, units), of, 8)[1]:
        assert of.allowed[np.arange(of.num_ops), placement.device].all()


def test_what_it_has_not_learned_is_refused():
    policy = placer(chains(1, 4, 2))
    with pytest.raises(ValueError, match="chains-1x5: 5 colocation groups, but this policy has learned 4"):
        policy.reset(chains(1, 5, 2), 1)
    assert greedy(policy)(chains(1, 3, 2)).device.max() < 2


def test_choices_rename_equal_devices_by_first_use_and_make_the_placement():
    of = branches(2)
    policy = placer(of, "colocated")
    assert isinstance(policy, Imitates)
    choices = policy.choices(of, Placement(np.array([1, 1, 1, 1, 1, 0, 0, 0, 0], dtype=np.int32)))
    tape = Tape.of(choices, 1)
    (again,) = rollout(policy, of, tape, None)[-1].placements
    assert choices["device"].tolist() == [[0, 0, 1]] and again.device.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_the_paper_and_nothing_else():
    config = read_settings("colocrl", "published")
    training = config.training
    assert config.policy == ColocRLConfig(schedule="fifo")
    assert (training.reward.kind, training.reward.invalid, training.credit.initial) == ("sqrt", INVALID, INVALID)
    assert (training.credit.baseline, training.mask_infeasible_after, training.placements) == ("moving-average", 5000, 8)
    assert training.exploration.entropy(0.5) == training.exploration.noise == training.warm_start.updates == 0
