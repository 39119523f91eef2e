"""Lessons (problems to learn from) and exams (problems to be placed), with their references and labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count

from gnnplace.baselines.single import best_device
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

MOST_CHARACTERS = 150  # MLflow's names of metrics have at most 250, names of files 255 bytes


@dataclass(frozen=True, eq=False)
class Lesson:
    """A problem to learn from; `reference_ns` is the step time with reward 0, `teacher` the placement to imitate.

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
    """A problem that a policy places without training on it, with the best heuristic's step time and the bound."""

    problem: Problem
    label: str
    heuristic_ns: int
    bound_ns: int


def labels(problems: Sequence[Problem]) -> list[str]:
    """`graph.cluster` for each problem, in characters that file and metric names may have; all labels differ.

    Where several would be, the second has `-2` behind it, and so on. A long one is cut and ends in a checksum.
    """
    unique: list[str] = []
    for problem in problems:
        text = f"{problem.graph.name}.{problem.cluster.name}"
        label = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in text)
        if len(label) > MOST_CHARACTERS:
            label = f"{label[:MOST_CHARACTERS]}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"
        others = (f"{label}-{number}" for number in count(2))
        unique.append(next(name for name in chain([label], others) if name not in unique))
    return unique


def reference_ns(problem: Problem, evaluate: Evaluator) -> int:
    """The step time of the best single device that fits (ops that may not stand there stand elsewhere).

    Where none fits, the fastest all the same; where none has a time (missing links), all work on the fastest devices.
    """
    best = best_device(problem, evaluate)
    return int(problem.time_ns.min(axis=1).sum()) if best is None else best.step_time_ns
