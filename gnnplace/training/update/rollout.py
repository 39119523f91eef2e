"""Episodes of policies under an evaluator, their replay under new weights, and policies as planners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnnplace.placement import Placement
from gnnplace.policies.protocol import Critic, Policy, asks
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner, StepResult


@dataclass(frozen=True, eq=False)
class Proposals:
    """One step of an episode: placements, their results (empty if not evaluated), and a critic's values before it.

    Placements of a step that only looks are of no sample.
    """

    placements: tuple[Placement, ...]
    results: tuple[StepResult, ...]
    values: Float[Tensor, " samples"] | None = None
    looks: bool = False


class Scored(NamedTuple):
    """An episode under the present weights: its decisions, and a critic's value of each state (None without)."""

    tape: Tape
    values: Float[Tensor, "steps samples"] | None


@torch.no_grad()
def rollout(policy: Policy, problem: Problem, tape: Tape, evaluate: Evaluator | None) -> tuple[Proposals, ...]:
    """One episode of `tape.samples` parallel placements, step by step; all samples of a step are evaluated in one call.

    `protocol.asks` tells which steps of a policy are evaluated, and what it reads of the results. The last step always
    is evaluated. `tape` keeps the decisions. Without an evaluator nothing is evaluated and the policy gets no feedback.
    """
    needs = asks(policy)
    every = needs.evaluates == "every" or needs.feedback != "none"

    def results(step: int, placements: tuple[Placement, ...], last: bool) -> tuple[StepResult, ...]:
        return (
            evaluate(problem, placements, timeline=needs.feedback == "timeline") if evaluate and (last or every) else ()
        )

    return _episode(policy, problem, tape, results)


def replay(
    policy: Policy, problem: Problem, tape: Tape, episode: Sequence[Proposals] = (), rows: slice | None = None
) -> Scored:
    """The decisions of `tape`, or of its samples `rows`, scored with gradients by the policy's present weights.

    `episode` is what `tape` recorded: a policy of several steps gets its results as feedback again.
    """
    scored = Tape.replaying(tape, rows)

    def results(step: int, placements: tuple[Placement, ...], last: bool) -> tuple[StepResult, ...]:
        return episode[step].results[rows or slice(None)] if step < len(episode) else ()

    return Scored(scored, values_of(_episode(policy, problem, scored, results)))


def values_of(episode: Sequence[Proposals]) -> Float[Tensor, "steps samples"] | None:
    """A critic's value of the state before every step; None without a critic."""
    values = [step.values for step in episode if step.values is not None]
    return torch.stack(values) if values else None


def rescored(policy: Policy, problem: Problem, tape: Tape, evaluate: Evaluator) -> Tape:
    """A tape with recorded choices, scored with gradients by the policy's present weights.

    A policy that reads results gets them anew.
    """
    needs = asks(policy)

    def results(step: int, placements: tuple[Placement, ...], last: bool) -> tuple[StepResult, ...]:
        read = needs.feedback != "none" and not last
        return evaluate(problem, placements, timeline=needs.feedback == "timeline") if read else ()

    _episode(policy, problem, tape, results)
    return tape


def _episode(
    policy: Policy,
    problem: Problem,
    tape: Tape,
    results: Callable[[int, tuple[Placement, ...], bool], tuple[StepResult, ...]],
) -> tuple[Proposals, ...]:
    state, steps, looks = policy.reset(problem, tape.samples), list[Proposals](), asks(policy).looks
    while state is not None:
        if steps:
            tape.next_step()
        values = policy.value(state) if isinstance(policy, Critic) else None
        feedback = steps[-1].results if steps and steps[-1].results else None
        placements, state = policy.step(state, tape, feedback)
        evaluations = results(len(steps), placements, state is None) if placements else ()
        steps.append(Proposals(placements, evaluations, values, len(steps) < looks))
    return tuple(steps)


def decode(policy: Policy, problem: Problem, evaluate: Evaluator) -> tuple[Placement, StepResult, Tape]:
    """The placement by the most probable options, its result (it is evaluated once), and the decisions."""
    tape = Tape("argmax", 1)
    last = rollout(policy, problem, tape, evaluate)[-1]
    return last.placements[0], last.results[0], tape


def greedy(policy: Policy, evaluate: Evaluator | None = None) -> Planner:
    """The planner that takes the most probable options; a policy with feedback needs `evaluate`."""

    def plan(problem: Problem) -> Placement:
        return rollout(policy, problem, Tape("argmax", 1), evaluate)[-1].placements[0]

    return plan


def sampled(
    policy: Policy, problem: Problem, samples: int, evaluate: Evaluator, generator: torch.Generator
) -> list[tuple[Placement, StepResult]]:
    """The evaluated placements of `samples` episodes, with their results."""
    return evaluated(rollout(policy, problem, Tape("sample", samples, generator), evaluate))


def best_of(policy: Policy, samples: int, evaluate: Evaluator, generator: torch.Generator) -> Planner:
    """The planner that draws `samples` placements and keeps the fastest feasible one (the first of equals).

    Where none is feasible it gives the first sample: its evaluation says why it is infeasible.
    """
    return lambda problem: fastest(sampled(policy, problem, samples, evaluate, generator))[0]


def evaluated(episode: Sequence[Proposals]) -> list[tuple[Placement, StepResult]]:
    """The placements of an episode's samples that were evaluated, with their results."""
    return [pair for step in episode if not step.looks for pair in zip(step.placements, step.results, strict=False)]


class BestSample(NamedTuple):
    """The fastest feasible placement of an episode, with its result, and the sample and step that proposed it."""

    sample: int
    step: int
    placement: Placement
    result: StepResult


def best_sample(episode: Sequence[Proposals]) -> BestSample:
    """The best sample of an episode, the first of equals; if nothing is feasible, the first evaluated one."""
    best = fastest(evaluated(episode))
    proposed = (
        (placement, number, sample)
        for number, step in enumerate(episode)
        if not step.looks
        for sample, placement in enumerate(step.placements)
    )
    return next(BestSample(sample, number, *best) for placement, number, sample in proposed if placement is best[0])


def fastest(proposals: Sequence[tuple[Placement, StepResult]]) -> tuple[Placement, StepResult]:
    """The fastest feasible proposal, the first of equals; if none is feasible, the first."""
    times = [
        (result.feasible_ns, index) for index, (_, result) in enumerate(proposals) if result.feasible_ns is not None
    ]
    return proposals[min(times)[1] if times else 0]
