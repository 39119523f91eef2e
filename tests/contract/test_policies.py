"""What every policy promises. A new policy is one line in POLICIES: a function from a problem to the policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.pretended_gpu import GPU, REAL_GPU, using

from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.placement import check
from gnnplace.policies.encoders.groups import MeanGroups
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps, vocabulary
from gnnplace.policies.encoders.unit_graph import UnitGraph
from gnnplace.policies.hierarchical import HierarchicalPlanner
from gnnplace.policies.networks.grouper import Grouper, RandomGrouping
from gnnplace.policies.networks.seq2seq import Seq2Seq
from gnnplace.policies.protocol import KeepsRanges, Policy
from gnnplace.policies.tape import Tape
from gnnplace.policies.ungrouped import UngroupedPlanner
from gnnplace.policies.unit_placer import UnitPlacer
from gnnplace.training.rollout import greedy, replay, rollout

GROUPS = 3


def paper(of, grouping=None):
    kinds = vocabulary([of.graph])
    groups, ops = PaperGroups(kinds, GROUPS), PaperOps(kinds)
    learned = grouping is None
    return HierarchicalPlanner(
        op_encoder=ops if learned else None,
        grouper=Grouper(ops.width, GROUPS) if learned else grouping,
        group_encoder=groups,
        placer=Seq2Seq(groups.width, of.num_devices, width=16),
    )


def with_gnn(of, grouper):
    ops = UnitGraph(width=8, rounds=2)
    groups = MeanGroups(ops.width, GROUPS)
    return HierarchicalPlanner(
        op_encoder=ops, grouper=grouper, group_encoder=groups, placer=Seq2Seq(groups.width, of.num_devices, width=16)
    )


def ungrouped(of):
    ops = PaperOps(vocabulary([of.graph]))
    return UngroupedPlanner(op_encoder=ops, network=Grouper(ops.width, of.num_devices))


POLICIES = {
    "hierarchical, paper, learned": paper,
    "hierarchical, paper, random": lambda of: paper(of, RandomGrouping(GROUPS, seed=1)),
    "hierarchical, gnn, learned": lambda of: with_gnn(of, Grouper(8, GROUPS)),
    "hierarchical, gnn, random": lambda of: with_gnn(of, RandomGrouping(GROUPS, seed=1)),
    "hierarchical, paper, none": ungrouped,
    "unit placer": lambda of: UnitPlacer(units="ops", width=8, rounds=2, hidden=8),
}
SAMPLES = 6


@pytest.fixture(params=POLICIES)
def make(request):
    def made(of):
        torch.manual_seed(0)
        return POLICIES[request.param](of)

    return made


def branches(devices=3):
    """Two branches of unlike ops that part and meet again, on equal GPUs."""
    ops = [
        Op("x", "Input", (Output(64, (4, 4)),)),
        Op("a", "MatMul", (Output(256, (8, 8)), Output(16, (4,))), flops=10**7),
        Op("b", "Conv2D", (Output(512, (2, 4, 4, 4)),), flops=10**6),
        Op("c", "MatMul", (Output(128, (4, 8)),), flops=10**7, colocation="w"),
        Op("d", "Relu", (Output(512, (2, 4, 4, 4)),), flops=10**5),
        Op("y", "AddN", (Output(4, ()),), flops=10, colocation="w"),
    ]
    edges = [(0, 0, 1), (0, 0, 2), (1, 0, 3), (1, 1, 3), (2, 0, 4), (3, 0, 5), (4, 0, 5), (2, CONTROL, 3)]
    return problem(ComputationGraph.from_ops("branches", ops, edges), equal_gpus(devices))


def restricted():
    """Ops that may stand on different devices alone, and colocation groups among them."""
    devices = [("gpu:0", "gpu:1"), ("gpu:1", "gpu:2"), ("gpu:0",), ("gpu:2",), ("gpu:0", "gpu:1", "gpu:2")]
    ops = [
        Op(f"o{i}", "Op", (Output(8),), time_ns=dict.fromkeys(devices[i % 5], 10), colocation=f"g{i % 5}" if i < 10 else None)
        for i in range(20)
    ]
    return problem(ComputationGraph.from_ops("restricted", ops, [(i, 0, i + 1) for i in range(19)]), equal_gpus(3))


def sampled(policy, of, samples=SAMPLES, seed=0):
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed))
    episode = rollout(policy, of, tape, None)
    return tape, episode[-1].placements


def test_satisfies_the_protocol(make):
    assert isinstance(make(branches()), Policy)


def test_ranges_do_not_change_how_a_training_problem_is_placed(make):
    of = branches()
    policy = make(of)
    if isinstance(policy, KeepsRanges):
        before = sampled(policy, of)[0].log_probability()
        policy.keep_ranges([of])
        torch.testing.assert_close(sampled(policy, of)[0].log_probability(), before)


def test_every_op_is_placed_by_a_decision(make):
    of = branches()
    policy = make(of)
    tape, (placement,) = sampled(policy, of, samples=1)
    choices = {name: made.choice() for name, made in tape.decisions.items()}
    moved = np.zeros(of.num_ops, dtype=bool)
    for name, choice in choices.items():
        options = tape.decisions[name].logits[0].shape[-1]
        for index in range(choice.numel()):
            for shift in range(1, options):
                other = choice.clone()
                other.view(-1)[index] = (other.view(-1)[index] + shift) % options
                (changed,) = rollout(policy, of, Tape.of({**choices, name: other}, 1), None)[-1].placements
                moved |= changed.device != placement.device
    assert moved.all()


def test_replay_gives_the_same_placements_and_log_probabilities(make):
    of = branches()
    policy = make(of)
    tape, placements = sampled(policy, of)
    scored = replay(policy, of, tape)
    again = rollout(policy, of, scored.replaying(tape), None)[-1].placements
    assert [p.device.tolist() for p in again] == [p.device.tolist() for p in placements]
    torch.testing.assert_close(scored.log_probability(), tape.log_probability(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scored.entropy(), tape.entropy(), rtol=1e-4, atol=1e-4)
    assert scored.log_probability().requires_grad


def test_replay_keeps_the_noise_that_was_measured(make):
    of = branches()
    policy = make(of)
    tape = Tape("sample", SAMPLES, torch.Generator().manual_seed(0), noise=1.0)
    rollout(policy, of, tape, None)
    torch.testing.assert_close(replay(policy, of, tape).log_probability(), tape.log_probability(), rtol=1e-4, atol=1e-4)


def test_same_seed_same_samples_and_greedy_is_deterministic(make):
    of = branches()
    first, second = (sampled(make(of), of)[1] for _ in range(2))
    assert [p.device.tolist() for p in first] == [p.device.tolist() for p in second]
    policy = make(of)
    assert greedy(policy)(of).device.tolist() == greedy(make(of))(of).device.tolist() == greedy(policy)(of).device.tolist()


def test_another_seed_gives_other_samples(make):
    of = branches()
    policy = make(of)
    drawn = {tuple(p.device.tolist()) for seed in range(3) for p in sampled(policy, of, seed=seed)[1]}
    assert len(drawn) > 1


def test_every_parameter_gets_a_gradient(make):
    of = branches()
    policy = make(of)
    for seed in range(4):  # one grouping alone may leave groups empty, which some weights read
        tape, _ = sampled(policy, of, seed=seed)
        weights = torch.randn(SAMPLES, generator=torch.Generator().manual_seed(seed))
        (weights * replay(policy, of, tape).log_probability()).sum().backward()
    missing = [name for name, parameter in policy.named_parameters() if parameter.grad is None or not parameter.grad.abs().sum() > 0]
    assert missing == []


@pytest.mark.parametrize(
    "tiny",
    [
        pytest.param(lambda: chains(1, 1, 2), id="1 op"),
        pytest.param(lambda: chains(1, 1, 1), id="1 op, 1 device"),
        pytest.param(lambda: chains(1, 5, 1), id="1 device"),
        pytest.param(lambda: chains(4, 1, 3), id="no edges"),
        pytest.param(lambda: chains(3, 3, 2), id="disconnected"),
        pytest.param(lambda: problem(ComputationGraph.from_ops("c", [op("a"), op("b")], [(0, CONTROL, 1)]), equal_gpus(2)), id="control"),
        pytest.param(lambda: problem(ComputationGraph.from_ops("n", [Op("a", "NoOp")], []), equal_gpus(2)), id="no outputs"),
    ],
)
def test_tiny_graphs(make, tiny):
    of = tiny()
    policy = make(of)
    tape, placements = sampled(policy, of)
    for placement in (*placements, greedy(policy)(of)):
        assert check(of, placement) is None
    scored = replay(policy, of, tape).log_probability()
    torch.testing.assert_close(scored, tape.log_probability(), rtol=1e-4, atol=1e-4)


def test_places_on_legal_devices_alone(make):
    of = restricted()
    for placement in sampled(make(of), of, samples=24)[1]:
        assert check(of, placement) is None


def test_more_samples_than_one_are_as_many_placements(make):
    of = branches()
    policy = make(of)
    for samples in (1, 2, 5):
        assert len(sampled(policy, of, samples)[1]) == samples


def update(policy, of):
    """One update on the policy's device: its choices, placements (sampled and greedy), loss and gradients, on the CPU."""
    tape = Tape("sample", SAMPLES, torch.Generator().manual_seed(0), noise=0.5)
    placements = [*rollout(policy, of, tape, None)[-1].placements, greedy(policy)(of)]
    scored = replay(policy, of, tape)
    advantage = torch.arange(SAMPLES).to(scored.log_probability()) - 2.0
    loss = (advantage * scored.log_probability()).mean() + 0.1 * scored.entropy().mean()
    loss.backward()
    torch.optim.Adam(policy.parameters()).step()
    choices = [made.choice().cpu().tolist() for made in tape.decisions.values()]
    return choices, [p.device.tolist() for p in placements], [loss.detach().cpu(), *(p.grad.cpu() for p in policy.parameters())]


@pytest.mark.parametrize("device", [GPU, REAL_GPU])
def test_a_gpu_decides_and_learns_as_a_cpu_does(make, device):
    of = restricted()
    choices, placements, computed = update(make(of), of)
    policy = make(of)
    greedy(policy)(of)  # what is kept of the problem goes with the policy
    with using(device):
        policy.to(device)
        assert {parameter.device for parameter in policy.parameters()} == {torch.device(device)}
        there = update(policy, of)
        policy.to("cpu")
    assert there[:2] == (choices, placements)
    for ours, theirs in zip(there[2], computed, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    greedy(policy)(of)
