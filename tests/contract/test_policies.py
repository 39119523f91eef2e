"""What every policy of the table promises, with each of its encoders."""

import re
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch
from support.graphs import chains
from support.pretended_gpu import GPU, REAL_GPU, using
from support.slow import slow
from support.small_policies import ENCODED, SMALL, small

from gnnplace import testing
from gnnplace.costs import roofline
from gnnplace.placement import Placement
from gnnplace.placement import check as legal
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.protocol import Imitates, asks
from gnnplace.policies.registry import POLICIES
from gnnplace.policies.tape import Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.rollout import greedy, replay, rollout

SWITCHES = ("encoder", "features", "neighbours", "kinds", "devices", "grouper", "grouping", "order")
LAST_ENCODED = list({config.kind: config for config in ENCODED}.values())
"""One configuration of every policy, with the last of its encoders."""
CONFIGS = list(dict.fromkeys([config for kind in POLICIES for config in small(kind)] + ENCODED))


def named(config):
    return "-".join([config.kind, *(getattr(config, knob) for knob in SWITCHES if hasattr(config, knob))])


def between(config):
    """Whether only `make test-all` checks it: what each switch does alone and all together is seen without it."""
    return isinstance(config, HierarchicalConfig) and (config.features, config.neighbours) in (("paper", "messages"), ("costs", "indices"))


def in_core(config, check):
    """Whether `make test` runs a check: every check with each encoder of a policy, those of decisions with the other switches too."""
    return config in ENCODED or (check in OF_DECISIONS and not between(config))


OF_DECISIONS = (testing.every_op_is_placed_by_a_decision, testing.replay_gives_the_same_placements_and_log_probabilities)
CHECKED = [
    pytest.param(config, check, id=f"{named(config)}-{check.__name__}", marks=[] if in_core(config, check) else pytest.mark.slow)
    for config in CONFIGS
    for check in testing.CHECKS
]


@pytest.mark.parametrize(("config", "check"), CHECKED)
def test_keeps_its_promise(config, check):
    check(partial(testing.built, config))


@pytest.mark.parametrize("kind", POLICIES)
def test_is_in_the_table_under_its_own_name(kind):
    assert POLICIES[kind]().kind == kind


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_another_number_of_devices_is_placed_on_or_refused(config):
    two, three = chains(2, 2, 2), chains(2, 2, 3)
    policy = testing.built(config, two)
    if config.shape([two]).devices:  # its weights name them
        with pytest.raises(ValueError, match="gpus-3: 3 devices, but this policy places on 2"):
            policy.reset(three, 1)
        with pytest.raises(ValueError, match=f"clusters of 2 and 3 devices, but a {config.kind} policy places on one number of them"):
            config.shape([two, three])
    else:
        assert legal(three, greedy(policy, testing.evaluator(policy))(three)) is None


@pytest.mark.parametrize("kind", POLICIES)
def test_a_knob_out_of_range_is_one_line(kind):
    """Every number of a configuration has its range, and no policy takes priorities for a rule."""
    config = POLICIES[kind]()
    numbers = {field.name: type(getattr(config, field.name)) for field in fields(config)}
    for name, number in numbers.items():
        if number not in (int, float):
            continue
        with pytest.raises(ValueError, match=rf"^policy\.{name}: {number(-1)} is [^\n]+$") as refused:
            replace(config, **{name: number(-1)})
        if ends := re.search(r"between (\d+) and (\d+)$", str(refused.value)):
            for outside in (int(ends[1]) - 1, int(ends[2]) + 1):
                with pytest.raises(ValueError, match=rf"^policy\.{name}: {outside} is not between {ends[1]} and {ends[2]}$"):
                    replace(config, **{name: outside})
    with pytest.raises(ValueError, match=r"^policy\.schedule: 'given' needs priorities, and this knob names a rule"):
        replace(config, schedule="given")


IMITATORS = {"hierarchical", "unit-placer", "colocrl", "go"}


@pytest.mark.parametrize("config", [config for config in CONFIGS if config.kind in IMITATORS], ids=named)
def test_choices_make_the_placement_with_equal_devices_named_by_first_use(config):
    """Two chains stand on a device each. The devices are equal, so the first chain's is called the first."""
    of = chains(2, 3, 2)
    placement = Placement(np.array([1, 1, 1, 0, 0, 0], dtype=np.int32))
    policy = testing.built(config, of)
    assert isinstance(policy, Imitates) == (getattr(config, "grouper", None) != "none")
    if isinstance(policy, Imitates) and not asks(policy).looks:
        tape = Tape.recorded([policy.choices(of, placement)] * getattr(config, "iterations", 1))
        again = rollout(policy, of, tape, testing.evaluator(policy))[-1].placements[0]
        assert tape.log_probability().isfinite().all()
        times = [result.step_time_ns for result in simulate(of, [placement, again])]
        assert again.device.tolist() == [0, 0, 0, 1, 1, 1] and times[0] == times[1]


def test_a_policy_that_chooses_no_placement_imitates_none():
    assert {kind for kind in POLICIES if isinstance(testing.built(small(kind)[0], chains(2, 3, 2)), Imitates)} == IMITATORS


class Forgetful(torch.nn.Module):
    """A policy whose last four ops always stand on the first device, whatever it decides and wherever they may stand."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def reset(self, problem, samples):
        return self.policy.reset(problem, samples)

    def step(self, state, choose, feedback):
        placements, following = self.policy.step(state, choose, feedback)
        return tuple(Placement(np.concatenate([p.device[:-4], np.zeros(4, np.int32)]), p.schedule) for p in placements), following


@pytest.mark.parametrize("check", [testing.every_op_is_placed_by_a_decision, testing.ops_are_placed_where_they_may_stand])
def test_a_broken_promise_is_found(check):
    make = partial(testing.built, SMALL["unit-placer"][0])
    with pytest.raises(AssertionError):
        check(lambda problem: Forgetful(make(problem)))


def update(policy, of):
    """One update on the policy's device: its choices, placements (sampled and greedy), loss and gradients, on the CPU."""
    tape = Tape("sample", testing.SAMPLES, torch.Generator().manual_seed(0), noise=0.5)
    evaluate = testing.evaluator(policy)
    episode = rollout(policy, of, tape, evaluate)
    placements = [*episode[-1].placements, greedy(policy, evaluate)(of)]
    scored, values = replay(policy, of, tape, episode)
    advantage = torch.arange(testing.SAMPLES).to(scored.log_probability()) - 2.0
    worth = 0.0 if values is None else values.mean()
    loss = (advantage * scored.log_probability()).mean() + 0.1 * scored.entropy().mean() + worth
    loss.backward()
    torch.optim.Adam(policy.parameters()).step()
    choices = [made.choice().cpu().tolist() for made in tape.steps[0].values()]
    return choices, [p.device.tolist() for p in placements], [loss.detach().cpu(), *(p.grad.cpu() for p in policy.parameters())]


def unequal(of):
    """A problem on GPUs of other sizes of memory: equal ones differ by rounding alone, which no two devices do alike."""
    gpus = tuple(replace(gpu, memory_bytes=(1 + i) * gpu.memory_bytes) for i, gpu in enumerate(of.cluster.devices))
    return roofline.problem(of.graph, replace(of.cluster, devices=gpus))


@pytest.mark.parametrize("device", [GPU, REAL_GPU])
@pytest.mark.parametrize("config", [config if config in LAST_ENCODED else slow(config) for config in CONFIGS], ids=named)
def test_a_gpu_decides_and_learns_as_a_cpu_does(config, device):
    of, make = unequal(testing.restricted()), partial(testing.built, config)
    choices, placements, computed = update(make(of), of)
    policy = make(of)
    greedy(policy, testing.evaluator(policy))(of)  # what is kept of the problem goes with the policy
    with using(device):
        policy.to(device)
        assert {parameter.device for parameter in policy.parameters()} == {torch.device(device)}
        there = update(policy, of)
        policy.to("cpu")
    assert there[:2] == (choices, placements)
    for found, expected in zip(there[2], computed, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    greedy(policy, testing.evaluator(policy))(of)
