"""The work of each step of the optimiser: problems in an order fixed by seed and update; and the exams.

A resumed run gets the same work as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import lightning
import numpy as np
import torch
from torch.utils.data import DataLoader

from gnnplace.config.training import Phase
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Exam

ORDER, SAMPLES, BROUGHT = range(3)  # purposes of draws; each has a generator of its own


class Work(NamedTuple):
    """One step of the optimiser: pass `turn` of `turns` over an update's samples of these problems (lesson numbers)."""

    update: int
    problems: tuple[int, ...]
    phase: Phase
    turn: int = 0
    turns: int = 1

    @property
    def first(self) -> bool:
        return self.turn == 0

    @property
    def last(self) -> bool:
        return self.turn == self.turns - 1


class Updates:
    """The work of a run, an iterable of one epoch, from the update that `done` returns when the iteration begins.

    Problems come in a new seeded order whenever all have come; under a curriculum the larger ones join one after
    another. `sizes` are the problems' sizes.
    """

    def __init__(self, sizes: Sequence[int], learning: Learning, done: Callable[[], int]) -> None:
        self._by_size = np.argsort(sizes, kind="stable")
        self._learning, self._done = learning, done

    def __len__(self) -> int:
        """The number of steps of the whole run, with the finished ones."""
        return sum((phase.last - phase.first) * self._turns_of(phase) for phase in self._learning.phases)

    def __iter__(self) -> Iterator[Work]:
        for phase in self._learning.phases:
            turns = self._turns_of(phase)
            for update in range(max(phase.first, self._done()), phase.last):
                problems = self.problems(update)
                yield from (Work(update, problems, phase, turn, turns) for turn in range(turns))

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the learner knows how many updates are done.

        That there is one tells Lightning that this iterable can go on.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""

    def problems(self, update: int) -> tuple[int, ...]:
        """The problems of an update."""
        number = self._available(update)
        count = self._learning.training.problems_per_update
        return tuple(
            int(self._by_size[self._drawn(place, number)]) for place in range(update * count, (update + 1) * count)
        )

    def _turns_of(self, phase: Phase) -> int:
        """The number of passes of an update over its samples."""
        return self._learning.algorithm.steps if phase.name == "reinforcement" else 1

    def _available(self, update: int) -> int:
        """The number of smallest problems that are available."""
        number, joining = len(self._by_size), self._learning.training.curriculum * self._learning.all_updates
        if update >= joining:
            return number
        return min(
            number, max(self._learning.training.problems_per_update, int(np.ceil(number * (update + 1) / joining)))
        )

    def _drawn(self, place: int, number: int) -> int:
        epoch, position = divmod(place, number)
        return int(np.random.default_rng([self._learning.seed, ORDER, epoch, number]).permutation(number)[position])


class Problems(lightning.LightningDataModule):
    """The training problems as the work of a run, and the exams: problems that are placed and never trained on."""

    def __init__(self, updates: Updates, exams: Sequence[Exam] = ()) -> None:
        super().__init__()
        self.updates, self.exams = updates, tuple(exams)

    def train_dataloader(self) -> Updates:
        return self.updates

    def val_dataloader(self) -> DataLoader:
        exams: Any = list(self.exams)
        return DataLoader(exams, batch_size=None, collate_fn=lambda exam: exam)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Work and exams are plain data: policies put tensors where their weights are."""
        return batch


def sample_generator(seed: int, update: int, place: int) -> torch.Generator:
    """The generator of the samples of the problem at one place of an update.

    It is a function of these numbers, so none of its state is saved.
    """
    state = np.random.SeedSequence([seed, SAMPLES, update, place]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state))
