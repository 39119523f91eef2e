"""DistributedDataParallel (Li et al., VLDB 2020): every device has the network and a share of the micro-batches.

Gradients are summed round a ring, bucket by bucket, while the backward pass goes on. Shares follow the speeds of the
devices; with equal devices they are equal, as in PyTorch.
"""

from __future__ import annotations

import numpy as np

from gnnplace.baselines.data_parallel.forms import best_of, copies_of, replicated
from gnnplace.baselines.data_parallel.shares import Shares, shares
from gnnplace.baselines.data_parallel.turns import turns
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal


def ddp(problem: Problem, evaluate: Evaluator) -> Proposal:
    """The best of replicas on all accelerators, on the fastest half, and so on to a single one."""
    return best_of([replicated_on(problem, share) for share in shares(problem)], evaluate)


def replicated_on(problem: Problem, share: Shares) -> Proposal:
    """A replica on each device of the shares, which takes its micro-batches in turn."""
    form = replicated(problem, share, "whole")
    device = share.devices[copies_of(form.graph).replica].astype(np.int32)
    return Proposal(form, Placement(device, "given", turns(form.graph, share)))
