"""From a policy's devices of units to placements of ops, one a sample."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from torch import Tensor

from gnnplace.placement import Placement, Schedule
from gnnplace.transforms.units import Units, expand


def unit_placements(units: Units, device: Int[Tensor, "samples units"], schedule: Schedule) -> tuple[Placement, ...]:
    """Every op stands where its unit does."""
    devices = expand(units, device.cpu().numpy().astype(np.int32))
    return tuple(Placement(row, schedule) for row in devices)
