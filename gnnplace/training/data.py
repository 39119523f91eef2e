"""What each update trains on: problems in an order that the seed and the update's number fix, so that a resumed run sees the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset

from gnnplace.baselines.single import on_device
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

ORDER, SAMPLES = 0, 1  # what a draw is for: draws for one purpose don't depend on those for another


@dataclass(frozen=True, eq=False)
class Lesson:
    """A problem to learn from; `reference_ns` is the step time that counts as reward 0, `teacher` what a warm start imitates."""

    problem: Problem
    reference_ns: int
    teacher: Placement | None = None

    @property
    def label(self) -> str:
        """`graph.cluster`, in the characters that names of metrics and files may have."""
        name = f"{self.problem.graph.name}.{self.problem.cluster.name}"
        return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)


class Updates(Dataset):
    """Item u is `(update, problem numbers)`: updates from `first` on, each epoch through all problems in a new seeded order."""

    def __init__(self, num_problems: int, per_update: int, seed: int, first: int, last: int) -> None:
        self.num_problems, self.per_update, self.seed, self.first, self.last = num_problems, per_update, seed, first, last

    def __len__(self) -> int:
        return max(0, self.last - self.first)

    def __getitem__(self, index: int) -> tuple[int, tuple[int, ...]]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        update = self.first + index
        places = range(update * self.per_update, (update + 1) * self.per_update)
        return update, tuple(self._problem(place) for place in places)

    def _problem(self, place: int) -> int:
        epoch, position = divmod(place, self.num_problems)
        order = np.random.default_rng([self.seed, ORDER, epoch]).permutation(self.num_problems)
        return int(order[position])


def sample_generator(seed: int, update: int, problem: int) -> torch.Generator:
    """The generator of one update's samples of one problem: a function of these numbers alone, so nothing of it needs saving."""
    state = np.random.SeedSequence([seed, SAMPLES, update, problem]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state))


def reference_ns(problem: Problem, evaluate: Evaluator) -> int:
    """The step time of the best single device that fits (ops that may not stand there stand elsewhere).

    Where none fits, the fastest all the same; where none has a time (missing links), all work on the fastest devices.
    """
    results = evaluate(problem, [on_device(problem, device) for device in range(problem.num_devices)])
    feasible = [result.feasible_ns for result in results if result.feasible_ns is not None]
    timed = [result.step_time_ns for result in results if result.step_time_ns is not None]
    return min(feasible or timed or [int(problem.time_ns.min(axis=1).sum())])
