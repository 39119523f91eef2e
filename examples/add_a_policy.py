"""A policy of your own: one linear layer scores every device for every unit. Checked, trained on a corpus graph, and compared.

A policy is one file, which holds its networks and its knobs, and one line in the table of policies, gnnplace/policies/registry.py.
With that line `policy.kind: linear` works in configurations and on the command line, and checkpoints of it load and place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

import gnnplace as gp
from gnnplace.placement import Placement, Schedule
from gnnplace.policies import registry
from gnnplace.policies.features import NODE_FEATURES, features
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import ProblemConstants, named_devices, require_devices, unit_placements
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.testing import check_policy
from gnnplace.units.units import Units, UnitsName, allowed, units


@dataclass(frozen=True)
class LinearConfig(PolicyConfig):
    """One linear layer from the features of a unit to a logit for each device.

    Args:
        kind: names this policy
        units: what is placed together
        schedule: how ops are ordered within devices
    """

    kind: Literal["linear"] = "linear"
    units: UnitsName = "coarse"
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        self.require_rule()

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        return PolicyShape(devices=named_devices(problems, self.kind))

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> "Linear":
        return Linear(shape.devices, self.units, self.schedule)


class State(NamedTuple):
    samples: int
    units: Units
    features: Tensor
    allowed: Tensor


class Linear(nn.Module):
    """Reads a unit's features; decides "device" for all units at once, each where it may stand; for one number of devices."""

    def __init__(self, devices: int, units: UnitsName, schedule: Schedule) -> None:
        super().__init__()
        self.score, self.units, self.schedule = nn.Linear(NODE_FEATURES, devices), units, schedule
        self.constants = ProblemConstants(self.state)  # computed once for a problem, kept where the weights are

    def state(self, problem: Problem) -> State:
        of_ops = units(problem.graph, self.units)
        return State(1, of_ops, features(problem, of_ops).node, torch.from_numpy(allowed(problem, of_ops)))

    def reset(self, problem: Problem, samples: int) -> State:
        require_devices(problem, self.score.out_features)
        return self.constants.of(problem, self)._replace(samples=samples)

    def step(self, state: State, choose: Choose, feedback: Sequence[StepResult] | None) -> tuple[tuple[Placement, ...], None]:
        logits = self.score(state.features).expand(state.samples, -1, -1)
        device = choose("device", logits, state.allowed)
        return unit_placements(state.units, device, self.schedule), None


registry.POLICIES["linear"] = LinearConfig  # the one line: in registry.py for a policy of the package


def main() -> None:
    check_policy(LinearConfig())
    problem = gp.problem("dlrm", cluster="k40-2")
    knobs = {"training.placements": 16, "training.optimizer.lr": 0.05}
    untrained = gp.train(problem, "linear", knobs=knobs | {"training.updates": 0})
    trained = gp.train(problem, "linear", knobs=knobs | {"training.updates": 20})
    placements = {"one device": gp.place(problem, "gpu"), "untrained": untrained.policy(problem), "trained": trained.policy(problem)}
    for name, placement in (placements | {"best sample": trained.best[0]}).items():
        print(f"{name}: {gp.simulate(problem, placement).step_time_ns} ns")


if __name__ == "__main__":
    main()
