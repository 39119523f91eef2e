"""Data and pipeline parallelism at once (Megatron-LM, Narayanan et al., SC 2021, section 3); no tensor parallelism.

People choose the number of replicas, each a pipeline over as many devices, and its schedule. Here all are tried.
"""

from __future__ import annotations

from gnnplace.baselines.data_parallel.forms import best_of, copies_of
from gnnplace.baselines.pipelines.in_replicas import in_replicas
from gnnplace.baselines.pipelines.schedules import SCHEDULES
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal
from gnnplace.step_forms import reformed
from gnnplace.transformations.replicas import replicas

TRIED = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "v-half")


def dp_pp(problem: Problem, evaluate: Evaluator) -> Proposal | None:
    """The fastest pipeline in each of several replicas.

    None if no number of replicas leaves each as many micro-batches, two at least, and two devices.
    """
    copies, proposals = copies_of(problem.graph), list[Proposal]()
    for number in range(2, len(problem.cluster.accelerators) // 2 + 1):
        share, rest = divmod(copies.micro_batches, number)
        if rest or share < 2:
            continue
        form = reformed(problem, replicas(copies.original, [share] * number, "together", copies.shared))
        proposals += [Proposal(form, in_replicas(form, evaluate, plan=SCHEDULES[name])) for name in TRIED]
    return best_of(proposals, evaluate) if proposals else None
