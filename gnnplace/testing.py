"""Checks that a policy keeps the promises of `policies/protocol.py`: call `check_policy(MineConfig())`, without pytest.

Each check is a function of `make(problem)`, which builds the policy for a problem with the same weights at every call.
A broken promise raises an AssertionError whose traceback names the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import roofline
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.placement import Placement, check
from gnnplace.policies import registry
from gnnplace.policies.protocol import ClampsFeatures, Policy, PolicyConfig, asks
from gnnplace.policies.tape import Decisions, Tape
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.rollout import Proposals, greedy, replay, rollout

Make = Callable[[Problem], Any]
SAMPLES, MOST_CHANGES = 6, 10
close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


def check_policy(config: PolicyConfig) -> None:
    """Runs every check on the policy of a configuration, with each of its encoders. Raises AssertionError.

    With small widths it takes seconds.
    """
    for encoded in with_each_encoder(config):
        for each in CHECKS:
            each(partial(built, encoded))


def with_each_encoder(config: PolicyConfig) -> tuple[PolicyConfig, ...]:
    """The configuration, and its variants with each other encoder that it supports."""
    others = [knobs for name, knobs in config.encoders.items() if name != config.encodes_with]
    return (config, *(replace(cast(Any, config), **knobs) for knobs in others))


def built(config: PolicyConfig, problem: Problem) -> Any:
    """The policy for one problem, with the weights of seed 0."""
    return registry.build(config, config.shape([problem]), 1, 0)


def satisfies_the_protocol(make: Make) -> None:
    policy = make(branches())
    assert isinstance(policy, Policy) and isinstance(policy, torch.nn.Module), (
        f"{type(policy).__name__} is not a Policy and an nn.Module"
    )


def ranges_do_not_change_how_a_training_problem_is_placed(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    if isinstance(policy, ClampsFeatures):
        before = _sampled(policy, problem).tape.log_probability()
        policy.widen_ranges([problem])
        close(_sampled(policy, problem).tape.log_probability(), before)


def every_op_is_placed_by_a_decision(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    tape, _, episode = _sampled(policy, problem, samples=1)
    moved = np.zeros(problem.num_ops, dtype=bool)
    for steps in _changed(tape):
        if moved.all():
            break
        changed, again = len(steps) - 1, rollout(policy, problem, Tape.recorded(steps, "argmax"), evaluator(policy))
        moved |= again[changed].placements[0].device != episode[changed].placements[0].device
    assert moved.all(), f"no decision moves ops {np.flatnonzero(~moved).tolist()}"


def replay_gives_the_same_placements_and_log_probabilities(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    tape, placements, episode = _sampled(policy, problem)
    scored = replay(policy, problem, tape, episode).tape
    again = rollout(policy, problem, scored.replaying(tape), evaluator(policy))[-1].placements
    assert _plain(again) == _plain(placements)
    close(scored.log_probability(), tape.log_probability())
    close(scored.entropy(), tape.entropy())
    assert scored.log_probability().requires_grad


def replay_keeps_the_noise_that_was_measured(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    tape = Tape("sample", SAMPLES, torch.Generator().manual_seed(0), noise=1.0)
    episode = rollout(policy, problem, tape, evaluator(policy))
    close(replay(policy, problem, tape, episode).tape.log_probability(), tape.log_probability())


def replay_scores_the_measured_choices_under_other_weights(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    tape, placements, episode = _sampled(policy, problem)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    scored = replay(policy, problem, tape, episode).tape
    assert all(map(_same_choices, scored.steps, tape.steps))
    assert not torch.allclose(scored.log_probability(), tape.log_probability(), rtol=1e-4, atol=1e-4)
    assert _plain(rollout(policy, problem, Tape.replaying(tape), evaluator(policy))[-1].placements) == _plain(
        placements
    )


def the_same_seed_gives_the_same_samples_and_greedy_is_deterministic(make: Make) -> None:
    problem = branches()
    first, second = (_sampled(make(problem), problem).placements for _ in range(2))
    assert _plain(first) == _plain(second)
    policy = make(problem)
    decoded = [greedy(each, evaluator(each))(problem) for each in (policy, make(problem), policy)]
    assert _plain(decoded) == _plain([decoded[0]] * 3)


def other_seeds_give_other_samples(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    drawn = [plain for seed in range(3) for plain in _plain(_sampled(policy, problem, seed=seed).placements)]
    assert any(plain != drawn[0] for plain in drawn)


def every_parameter_gets_a_gradient(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    for seed in range(4):  # one sample of groups may leave some empty, and weights of empty groups get no gradient
        tape, _, episode = _sampled(policy, problem, seed=seed)
        weights = torch.randn(SAMPLES, generator=torch.Generator().manual_seed(seed))
        scored = replay(policy, problem, tape, episode)
        values = 0.0 if scored.values is None else scored.values.sum(0)  # a critic has parameters, too
        (weights * (scored.tape.log_probability() + values)).sum().backward()
    missing = [
        name
        for name, parameter in policy.named_parameters()
        if parameter.grad is None or not parameter.grad.abs().sum() > 0
    ]
    assert missing == [], f"no gradient reaches {missing}"


def tiny_problems_are_placed(make: Make) -> None:
    for problem in tiny_problems():
        policy = make(problem)
        tape, placements, episode = _sampled(policy, problem)
        for placement in (*placements, greedy(policy, evaluator(policy))(problem)):
            _assert_legal(problem, placement)
        close(replay(policy, problem, tape, episode).tape.log_probability(), tape.log_probability())


def ops_are_placed_where_they_may_stand(make: Make) -> None:
    problem = restricted()
    for placement in _sampled(make(problem), problem, samples=24).placements:
        _assert_legal(problem, placement)


def samples_are_as_many_as_asked(make: Make) -> None:
    problem = branches()
    policy = make(problem)
    for samples in (1, 2, 5):
        assert len(_sampled(policy, problem, samples).placements) == samples


CHECKS: tuple[Callable[[Make], None], ...] = (
    satisfies_the_protocol,
    ranges_do_not_change_how_a_training_problem_is_placed,
    every_op_is_placed_by_a_decision,
    replay_gives_the_same_placements_and_log_probabilities,
    replay_keeps_the_noise_that_was_measured,
    replay_scores_the_measured_choices_under_other_weights,
    the_same_seed_gives_the_same_samples_and_greedy_is_deterministic,
    other_seeds_give_other_samples,
    every_parameter_gets_a_gradient,
    tiny_problems_are_placed,
    ops_are_placed_where_they_may_stand,
    samples_are_as_many_as_asked,
)


def branches() -> Problem:
    """Two branches of unlike ops that part and meet again, on three equal GPUs."""
    ops = [
        Op("x", "Input", (Output(64, (4, 4)),)),
        Op("a", "MatMul", (Output(256, (8, 8)), Output(16, (4,))), flops=10**7),
        Op("b", "Conv2D", (Output(512, (2, 4, 4, 4)),), flops=10**6),
        Op("c", "MatMul", (Output(128, (4, 8)),), flops=10**7, colocation="w"),
        Op("d", "Relu", (Output(512, (2, 4, 4, 4)),), flops=10**5),
        Op("y", "AddN", (Output(4, ()),), flops=10, colocation="w"),
    ]
    edges = [(0, 0, 1), (0, 0, 2), (1, 0, 3), (1, 1, 3), (2, 0, 4), (3, 0, 5), (4, 0, 5), (2, CONTROL, 3)]
    return _problem("branches", ops, edges, 3)


def restricted() -> Problem:
    """Ops that are allowed on some devices only, some of them in colocation groups."""
    devices = [("gpu:0", "gpu:1"), ("gpu:1", "gpu:2"), ("gpu:0",), ("gpu:2",), ("gpu:0", "gpu:1", "gpu:2")]
    ops = [
        Op(
            f"o{i}",
            "Op",
            (Output(8),),
            time_ns=dict.fromkeys(devices[i % 5], 10),
            colocation=f"g{i % 5}" if i < 10 else None,
        )
        for i in range(20)
    ]
    return _problem("restricted", ops, [(i, 0, i + 1) for i in range(19)], 3)


def tiny_problems() -> Iterator[Problem]:
    """Problems with one op, one device, no edges, separate chains, control edges only, an op without outputs."""
    for count, length, devices in ((1, 1, 2), (1, 1, 1), (1, 5, 1), (4, 1, 3), (3, 3, 2)):
        ops = [
            Op(f"c{c}/{i}", "Op", (Output(100),), time_ns={"gpu": 1000}) for c in range(count) for i in range(length)
        ]
        edges = [(c * length + i, 0, c * length + i + 1) for c in range(count) for i in range(length - 1)]
        yield _problem(f"chains-{count}x{length}", ops, edges, devices)
    yield _problem(
        "control", [Op(name, "Op", (Output(0),), time_ns={"gpu": 10}) for name in "ab"], [(0, CONTROL, 1)], 2
    )
    yield _problem("no outputs", [Op("a", "NoOp")], [], 2)


def _problem(name: str, ops: list[Op], edges: list[tuple[int, int, int]], gpus: int) -> Problem:
    devices = tuple(Device(f"gpu:{i}", "gpu", 10**9, 10**12, 10**12) for i in range(gpus))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    return roofline.problem(ComputationGraph.from_ops(name, ops, edges), Cluster(f"gpus-{gpus}", devices, links))


class Sampled(NamedTuple):
    """An episode: its decisions, its final placements, and all its steps."""

    tape: Tape
    placements: tuple[Placement, ...]
    episode: tuple[Proposals, ...]


def _sampled(policy: Any, problem: Problem, samples: int = SAMPLES, seed: int = 0) -> Sampled:
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed))
    episode = rollout(policy, problem, tape, evaluator(policy))
    return Sampled(tape, episode[-1].placements, episode)


def evaluator(policy: Any) -> Evaluator | None:
    """The evaluator that a policy needs for its feedback, None if it needs none."""
    return None if asks(policy).feedback == "none" else simulate


def _changed(tape: Tape) -> Iterator[list[dict[str, torch.Tensor]]]:
    """The choices of sample 0 up to a step in which one choice is changed.

    Every choice is changed in turn, to at most `MOST_CHANGES` other allowed options.
    """
    steps = tape.choices(0)
    for number, choices in enumerate(steps):
        for name, choice in choices.items():
            options = tape.steps[number][name].log_probabilities().flatten(0, -2).isfinite()
            for index, allowed in enumerate(options):
                chosen = int(choice.flatten()[index])
                for option in [option for option in allowed.nonzero().flatten().tolist() if option != chosen][
                    :MOST_CHANGES
                ]:
                    other = choice.clone()
                    other.view(-1)[index] = option
                    yield [*steps[:number], {**choices, name: other}]


def _same_choices(step: dict[str, Decisions], other: dict[str, Decisions]) -> bool:
    return step.keys() == other.keys() and all(torch.equal(step[name].choice(), other[name].choice()) for name in step)


def _plain(placements: tuple[Placement, ...] | list[Placement]) -> list[list[list[int] | None]]:
    """The devices of each placement and, if it has any, its priorities and fusion labels."""
    columns = [(each.device, each.priority, each.fusion) for each in placements]
    return [[None if values is None else values.tolist() for values in each] for each in columns]


def _assert_legal(problem: Problem, placement: Placement) -> None:
    fault = check(problem, placement)
    assert fault is None, f"{problem.graph.name}: {fault}"
