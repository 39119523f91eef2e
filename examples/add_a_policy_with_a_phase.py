"""A policy that brings a phase of its own: before it learns from its samples, it imitates random list schedules, new ones in each update.

A phase says its name, its updates and their learning rate, and gives a loss (gnnplace/policies/protocol.py, `Objective`). `objectives` of
the policy returns its phases. The learner asks nothing else of it, and gives each phase an Adam of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

import gnnplace as gp
from gnnplace.knobs import MOST_OF_A_STEP, MOST_WIDTH, above, at_least, between
from gnnplace.policies import registry
from gnnplace.policies.protocol import PolicyConfig, PolicyShape, Practice
from gnnplace.policies.unit_placer.policy import UnitPlacer, UnitPlacerConfig
from gnnplace.problems import Problem
from gnnplace.testing import check_policy
from gnnplace.training.update.algorithms.imitate import imitate


@dataclass(frozen=True)
class TaughtConfig(PolicyConfig):
    """The unit placer, which imitates list schedules first.

    Args:
        kind: names this policy
        width: width of the GNN's embeddings
        updates: how many updates imitate list schedules
        lr: their learning rate
        lists: random list schedules, at most, whose fastest is imitated
    """

    kind: Literal["taught"] = "taught"
    width: int = 32
    updates: int = 20
    lr: float = 0.01
    lists: int = 8

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", width=self.width)
        between(0, MOST_OF_A_STEP, "policy.", lists=self.lists)
        at_least(0, "policy.", updates=self.updates)
        above(0, "policy.", lr=self.lr)

    @property
    def proposes(self) -> Literal["critical-path"]:
        return "critical-path"

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> "Taught":
        return Taught(self)


class Taught(UnitPlacer):
    def __init__(self, config: TaughtConfig) -> None:
        super().__init__(UnitPlacerConfig(width=config.width))
        self.config = config

    def objectives(self, training: Any) -> "tuple[ImitatesLists]":
        return (ImitatesLists(self, self.config),)


class ImitatesLists:
    """The nats of the choices that make the fastest of some list schedules."""

    name = "lists"

    def __init__(self, policy: Taught, config: TaughtConfig) -> None:
        self.policy, self.updates, self.lr, self.lists = policy, config.updates, config.lr, config.lists

    def prepare(self, problems: Sequence[Problem], practice: Practice) -> None:
        """There is nothing to prepare."""

    def loss(self, problem: Problem, practice: Practice) -> tuple[Tensor | None, Mapping[str, float]]:
        placement = practice.starts(problem, practice.evaluate, practice.generator, self.lists)
        nats = imitate(self.policy, problem, self.policy.choices(problem, placement))
        return nats, {"lists_nats": float(nats.detach())}


registry.POLICIES["taught"] = TaughtConfig  # the one line


def main() -> None:
    check_policy(TaughtConfig(width=8))
    problem = gp.problem("dlrm", cluster="k40-2")
    for name, updates in (("untrained", 0), ("after its own phase", 20)):
        trained = gp.train(problem, "taught", knobs={"policy.updates": updates, "training.updates": 0})
        print(f"{name}: {gp.simulate(problem, trained.policy(problem)).step_time_ns} ns")


if __name__ == "__main__":
    main()
