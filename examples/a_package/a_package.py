"""A baseline and a policy of another package: `pip install` it beside gnnplace, and `compare` and `train.py --policy table` know them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

import gnnplace as gp
from gnnplace.baselines.legal import legalised
from gnnplace.placement import Schedule
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import unit_placements
from gnnplace.result import Evaluator, StepResult
from gnnplace.units.units import allowed, expand, units, work_ns


def longest_first(problem: gp.Problem, evaluate: Evaluator, *, schedule: Schedule) -> gp.Placement:
    """Longest processing time first (Graham, 1969): units by their work, each to the accelerator with the least work so far."""
    of_ops = units(problem.graph, "weights")
    work, load, device = work_ns(problem, of_ops), np.zeros(problem.num_devices), np.zeros(of_ops.num_units, np.int64)
    for unit in np.argsort(-work.min(axis=1), kind="stable"):
        device[unit] = problem.cluster.accelerators[np.argmin((load + work[unit])[problem.cluster.accelerators])]
        load[device[unit]] += work[unit, device[unit]]
    return gp.Placement(expand(of_ops, legalised(problem, of_ops, device)), schedule)


@dataclass(frozen=True)
class TableConfig(PolicyConfig):
    """A logit for each coarse unit and device of one problem, and nothing that could carry over to another.

    Args:
        kind: names this policy
        schedule: how ops are ordered within devices
    """

    kind: Literal["table"] = "table"
    schedule: Schedule = "critical-path"

    def shape(self, problems: Sequence[gp.Problem]) -> PolicyShape:
        return PolicyShape(
            devices=max(of.num_devices for of in problems), groups=max(units(of.graph, "coarse").num_units for of in problems)
        )

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> "Table":
        return Table(shape.groups, shape.devices, self.schedule)


class Table(nn.Module):
    def __init__(self, num_units: int, devices: int, schedule: Schedule) -> None:
        super().__init__()
        self.logits, self.schedule = nn.Parameter(torch.zeros(num_units, devices)), schedule

    def reset(self, problem: gp.Problem, samples: int) -> tuple[gp.Problem, int]:
        return problem, samples

    def step(
        self, state: tuple[gp.Problem, int], choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[gp.Placement, ...], None]:
        problem, samples = state
        of_ops = units(problem.graph, "coarse")
        logits = self.logits[: of_ops.num_units, : problem.num_devices].expand(samples, -1, -1)
        device = choose("device", logits, torch.from_numpy(allowed(problem, of_ops)))
        return unit_placements(of_ops, device, self.schedule), None
