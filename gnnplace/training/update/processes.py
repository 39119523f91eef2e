"""Communication between the processes of one training run (`--trainer.strategy ddp`): rewards, best placements.

Training is synchronous on purpose: the same global batch gives the same update on any number of processes, up to the
order of sums. The controllers of Mirhoseini et al. (ICLR 2018) update one parameter server asynchronously instead. With
one process nothing is sent.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, distributed


def number() -> int:
    """The number of processes that train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def launched_as() -> int:
    """The rank with which this process was started, before the processes have met."""
    return int(getattr(rank_zero_only, "rank", 0) or 0)


def rank() -> int:
    """The rank of this process."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def gathered(values: Tensor) -> Tensor:
    """The columns of all processes, beside each other in the order of ranks."""
    if number() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(number())]
    distributed.all_gather(parts, values.contiguous())
    return torch.cat(parts, dim=-1)


def sent_by(owner: int, value: Any) -> Any:
    """The value that process `owner` has, on all of them."""
    if number() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=owner)
    return box[0]
