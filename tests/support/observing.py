"""A small hierarchical policy that observes a base, and a simulator that counts."""

from __future__ import annotations

import torch

from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.simulator.simulator import simulate

OF = {"features": "costs", "neighbours": "messages", "kinds": "canonical", "devices": "observed", "units": "ops"}
SMALL = {"groups": 4, "width": 16, "encoder_width": 8, "encoder_rounds": 1}


def policy_of(posed, **knobs):
    torch.manual_seed(0)
    config = HierarchicalConfig(**(OF | SMALL | {"grouper": "scheduled", "bases": 3} | knobs))
    return config.build(config.shape([posed]), 1, 0)


class Counted:
    """The simulator, and how many placements it has simulated."""

    def __init__(self):
        self.number = 0

    def __call__(self, posed, placements, **options):
        self.number += len(placements)
        return simulate(posed, placements, **options)
