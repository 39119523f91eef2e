"""The table of policies: the configuration, the command line (`--policy.kind`), checkpoints and contract tests read it.

A policy is one file beside this one and one line in `POLICIES`. The file holds an `nn.Module` that satisfies `protocol.Policy`
and the dataclass of its knobs, a `protocol.PolicyConfig`, whose `build` makes the module. A policy that lives outside the package adds
its line by an entry point of the group `gnnplace.policies` (`gnnplace/installed.py`), or itself: `POLICIES["mine"] = MineConfig`, as
examples/add_a_policy.py does. `gnnplace.testing.check_policy` tests its promises.
"""

from __future__ import annotations

import torch
from torch import nn

from gnnplace import installed
from gnnplace.policies.colocrl import ColocRLConfig
from gnnplace.policies.generated import remove_generated
from gnnplace.policies.go import GOConfig
from gnnplace.policies.hierarchical import HierarchicalConfig
from gnnplace.policies.hsdag import HsdagConfig
from gnnplace.policies.improver import ImproverConfig
from gnnplace.policies.placeto import PlacetoConfig
from gnnplace.policies.protocol import PolicyConfig, PolicyShape
from gnnplace.policies.unit_placer import UnitPlacerConfig

POLICIES: dict[str, type[PolicyConfig]] = {
    "hierarchical": HierarchicalConfig,
    "unit-placer": UnitPlacerConfig,
    "improver": ImproverConfig,
    "colocrl": ColocRLConfig,
    "placeto": PlacetoConfig,
    "hsdag": HsdagConfig,
    "go": GOConfig,
}
POLICIES |= installed.added("gnnplace.policies", POLICIES)


def build(config: PolicyConfig, shape: PolicyShape, groupings: int, seed: int) -> nn.Module:
    """The policy with initial weights drawn from `seed`; torch's own generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = config.build(shape, groupings, seed)
    remove_generated()
    return built
