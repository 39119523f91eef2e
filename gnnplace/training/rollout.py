"""Where policies and evaluators meet: episodes, their replay under new weights, and policies as planners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gnnplace.placement import Placement
from gnnplace.policies.protocol import Policy
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Planner, StepResult


@dataclass(frozen=True, eq=False)
class Proposals:
    """What one step of an episode proposed, and what each proposal took (empty where nothing was evaluated)."""

    placements: tuple[Placement, ...]
    results: tuple[StepResult, ...]


@torch.no_grad()
def rollout(policy: Policy, problem: Problem, tape: Tape, evaluate: Evaluator | None) -> tuple[Proposals, ...]:
    """One episode of `tape.samples` parallel placements, step by step; all samples of a step are evaluated in one call.

    The decisions are kept by `tape`. Without an evaluator the policy gets no feedback.
    """
    return _episode(policy, problem, tape, lambda step, placements: () if evaluate is None else tuple(evaluate(problem, placements)))


def replay(policy: Policy, problem: Problem, tape: Tape, episode: Sequence[Proposals] = ()) -> Tape:
    """A new tape with the decisions of `tape`, scored with gradients by the policy's present weights.

    `episode` is what `tape` recorded: a policy of several steps gets its results as feedback again.
    """
    scored = Tape.replaying(tape)
    _episode(policy, problem, scored, lambda step, _: episode[step].results if step < len(episode) else ())
    return scored


def _episode(
    policy: Policy, problem: Problem, tape: Tape, results: Callable[[int, tuple[Placement, ...]], tuple[StepResult, ...]]
) -> tuple[Proposals, ...]:
    state, steps = policy.reset(problem, tape.samples), list[Proposals]()
    while state is not None:
        feedback = steps[-1].results if steps and steps[-1].results else None
        placements, state = policy.step(state, tape, feedback)
        steps.append(Proposals(placements, results(len(steps), placements)))
    return tuple(steps)


def greedy(policy: Policy, evaluate: Evaluator | None = None) -> Planner:
    """The planner that takes the most probable option of every decision; `evaluate` is for policies that need feedback."""

    def plan(problem: Problem) -> Placement:
        return rollout(policy, problem, Tape("argmax", 1), evaluate)[-1].placements[0]

    return plan


def best_of(policy: Policy, samples: int, evaluate: Evaluator, generator: torch.Generator) -> Planner:
    """The planner that draws `samples` placements and keeps the fastest feasible one (the first of equals).

    Where none is feasible it gives the first sample: its evaluation says why it is infeasible.
    """

    def plan(problem: Problem) -> Placement:
        steps = rollout(policy, problem, Tape("sample", samples, generator), evaluate)
        proposals = [pair for step in steps for pair in zip(step.placements, step.results, strict=True)]
        return fastest(proposals)[0]

    return plan


def fastest(proposals: Sequence[tuple[Placement, StepResult]]) -> tuple[Placement, StepResult]:
    """The fastest feasible proposal, the first of equals; where none is feasible, the first."""
    times = [(result.feasible_ns, index) for index, (_, result) in enumerate(proposals) if result.feasible_ns is not None]
    return proposals[min(times)[1] if times else 0]
