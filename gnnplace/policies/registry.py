"""The table of policies: the configuration, the command line (`--policy.kind`), checkpoints and contract tests read it.

A policy is one folder beside this file and one line in `POLICIES`. Its `policy.py` holds an `nn.Module` that satisfies
`protocol.Policy` and the dataclass of its knobs, a `protocol.PolicyConfig`, whose `build` makes the module. A policy
that lives outside the package adds its line by an entry point of the group `gnnplace.policies`
(`gnnplace/installed.py`), or itself: `POLICIES["mine"] = MineConfig`, as examples/add_a_policy.py does.
`gnnplace.testing.check_policy` tests its promises.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from gnnplace import installed
from gnnplace.policies.colocrl.policy import ColocRLConfig
from gnnplace.policies.go.policy import GOConfig
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.hsdag.policy import HsdagConfig
from gnnplace.policies.improver.policy import ImproverConfig
from gnnplace.policies.placeto.policy import PlacetoConfig
from gnnplace.policies.protocol import PolicyConfig, PolicyShape
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig

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


def remove_generated() -> None:
    """Removes the code of convolutions that PyG wrote into the temporary folder, imported, and left there."""
    folder = Path(tempfile.gettempdir())
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "")
        if name.startswith("torch_geometric.") and path.parent == folder:
            for file in (path, Path(module.__cached__)):
                file.unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or it holds other programs'
        (folder / "__pycache__").rmdir()
