"""A problem to learn from, what it is compared with, and the name of its metrics and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gnnplace.baselines.single import on_each
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator


@dataclass(frozen=True, eq=False)
class Lesson:
    """A problem to learn from; `reference_ns` is the step time that counts as reward 0, `teacher` what a warm start imitates.

    `label` names its metrics and files. It is `graph.cluster` unless given, in the characters that such names may have.
    """

    problem: Problem
    reference_ns: int
    teacher: Placement | None = None
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or labels([self.problem])[0])


@dataclass(frozen=True, eq=False)
class Exam:
    """A problem that is placed by a policy which never learned from it, and what its placement is compared with."""

    problem: Problem
    label: str
    heuristic_ns: int
    bound_ns: int


def labels(problems: Sequence[Problem]) -> list[str]:
    """`graph.cluster` for each problem; where several have one name, the second has `-2` behind it, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for problem in problems:
        name = f"{problem.graph.name}.{problem.cluster.name}"
        name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def reference_ns(problem: Problem, evaluate: Evaluator) -> int:
    """The step time of the best single device that fits (ops that may not stand there stand elsewhere).

    Where none fits, the fastest all the same; where none has a time (missing links), all work on the fastest devices.
    """
    results = evaluate(problem, on_each(problem, range(problem.num_devices)))
    feasible = [result.feasible_ns for result in results if result.feasible_ns is not None]
    timed = [result.step_time_ns for result in results if result.step_time_ns is not None]
    return min(feasible or timed or [int(problem.time_ns.min(axis=1).sum())])
