"""The hierarchical policy with observed devices and messages: any problem, choices of a placement, and a Grouper taught by a clustering."""

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.policies import registry
from gnnplace.policies.hierarchical.config import ENCODERS, HierarchicalConfig
from gnnplace.policies.protocol import Groups
from gnnplace.policies.tape import Tape
from gnnplace.training.update.rollout import greedy, replay, rollout

SMALL = {"groups": 4, "width": 16, "encoder_width": 16, "encoder_rounds": 2}


def planner(*problems, groupings=1, encoder="gnn", **switches):
    config = HierarchicalConfig(**(SMALL | ENCODERS[encoder] | {"devices": "observed"} | switches))
    return registry.build(config, config.shape(problems), groupings, 0)


@pytest.mark.parametrize("encoder", [{}, {"features": "paper", "kinds": "canonical"}])
def test_one_policy_places_any_number_of_ops_and_devices(encoder):
    trained, others = [chains(2, 3, 2), chains(3, 3, 3)], [chains(1, 1, 1), chains(5, 2, 2), chains(4, 6, 5)]
    policy = planner(*trained, **encoder)
    policy.widen_ranges(trained)
    for of in (*trained, *others):
        assert greedy(policy)(of).device.max() < of.num_devices


def test_only_the_grouper_has_a_weight_for_each_group():
    few, many = (planner(groups=groups).state_dict() for groups in (4, 9))
    unlike = {name for name in few if few[name].shape != many[name].shape}
    assert unlike == {"grouper.layers.2.weight", "grouper.layers.2.bias"}


def test_the_first_group_cannot_tell_equal_devices_apart():
    tape = Tape("argmax", 1)
    rollout(planner(), chains(3, 2, 3), tape, None)
    logits = tape.steps[0]["device"].logits[0]
    torch.testing.assert_close(logits, logits[..., :1].expand_as(logits))


def test_empty_groups_are_no_decisions():
    of, policy = chains(1, 2, 2), planner(groups=9)
    tape = Tape("sample", 3, torch.Generator().manual_seed(0))
    rollout(policy, of, tape, None)
    scored = replay(policy, of, tape).tape
    assert scored.steps[0]["device"].choice().shape == (3, 9)
    assert (scored.steps[0]["device"].log_probability()[:, 2:] == 0).all() and (scored.steps[0]["device"].entropy()[:, 2:] == 0).all()


def test_choices_are_of_one_grouping_however_many_it_draws():
    of = chains(2, 3, 2)
    policy = planner(of, groupings=3)
    tape = Tape.of(policy.choices(of, Placement(np.array([1, 1, 1, 0, 0, 0], dtype=np.int32))), 1)
    (again,) = rollout(policy, of, tape, None)[-1].placements
    assert again.device.tolist() == [0, 0, 0, 1, 1, 1] and tape.log_probability().isfinite().all()


def test_choices_are_where_ops_may_stand():
    ops = [Op(f"o{i}", "Op", (Output(8),), time_ns={f"gpu:{d}": 10 for d in ((0, 1), (1, 2), (0, 2))[i % 3]}) for i in range(12)]
    of = problem(ComputationGraph.from_ops("g", ops, [(i, 0, i + 1) for i in range(11)]), equal_gpus(3))
    for groups in (2, 6):
        policy = planner(of, groups=groups)
        tape = Tape.of(policy.choices(of, Placement(np.array([i % 3 for i in range(12)], dtype=np.int32))), 1)
        rollout(policy, of, tape, None)
        assert tape.log_probability().isfinite().all()


def test_a_grouper_learns_a_clustering_without_a_placement():
    of = chains(1, 16, 2)
    policy = planner(of, hidden=32)
    assert isinstance(policy, Groups)
    target, optimizer = policy.grouping_target(of), torch.optim.Adam(policy.parameters(), lr=0.03)
    for _ in range(35):
        tape = Tape.of(target, 1)
        policy.group(policy.reset(of, 1), tape)
        optimizer.zero_grad()
        (-tape.log_probability().sum()).backward()
        optimizer.step()
    decoded = Tape("argmax", 1)
    policy.group(policy.reset(of, 1), decoded)
    assert (decoded.steps[0]["group"].choice() == target["group"]).float().mean() > 0.8


def test_devices_are_sampled_for_known_groups():
    """The known grouping is the only one, however many the policy would draw."""
    of, policy = chains(2, 3, 2), planner(groupings=2)
    target = policy.grouping_target(of)
    tape = Tape("sample", 4, torch.Generator().manual_seed(0), given=target)
    rollout(policy, of, tape, None)
    assert torch.equal(tape.steps[0]["group"].choice(), target["group"]) and tape.steps[0]["device"].choice().shape == (4, 4)


def test_the_encoders_are_two_switches():
    assert [HierarchicalConfig(**switches).encodes_with for switches in ENCODERS.values()] == ["paper", "gnn"]
    assert HierarchicalConfig(features="costs").encodes_with == "costs+indices"
    assert HierarchicalConfig(neighbours="messages").encodes_with == "paper+messages"


def test_an_older_configuration_migrates():
    old = {"kind": "hierarchical", "encoder": "paper", "groups": 8}
    assert HierarchicalConfig.migrated(old) == {"kind": "hierarchical", "groups": 8, "features": "paper", "neighbours": "indices"}
    assert HierarchicalConfig.migrated({"groups": 8}) == {"groups": 8}
    with pytest.raises(ValueError, match=r"policy.encoder: 'gnn' of an older version"):
        HierarchicalConfig.migrated({"encoder": "gnn"})


def test_devices_are_observed_by_a_placer_alone():
    with pytest.raises(ValueError, match=r"policy.devices: 'observed' is the Placer's"):
        HierarchicalConfig(grouper="none", devices="observed")
