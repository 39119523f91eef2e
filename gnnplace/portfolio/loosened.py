"""Replicas whose ops all stand on one device each, as replicas of which single copies may stand elsewhere.

The step is the same; with free copies but for rings: gradients that may stand on different devices are not in one
bucket.
"""

from __future__ import annotations

import numpy as np

from gnnplace.choices import CopiesName
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal
from gnnplace.schedules.moments import by_moment, raised
from gnnplace.step_forms import freed


def loosened(
    form: Problem, placement: Placement, evaluate: Evaluator, copies_stand: CopiesName = "free"
) -> Proposal | None:
    """The placement with copies free or anchored, whose ops have the order in which they ran; None without a step.

    The form has several replicas with copies "whole" and without layers at one home.
    """
    (result,) = evaluate(form, [placement], timeline=True)
    copies = form.graph.copies
    if result.timeline is None or copies is None:
        return None
    free = freed(form, copies_stand)
    graph, of_free = free.graph, free.graph.copies
    assert of_free is not None
    replica, first = np.unique(copies.replica, return_index=True)
    device = np.zeros(int(replica.max()) + 1, dtype=np.int32)
    device[replica] = placement.device[first]
    start_ns = dict(zip(form.graph.op_names, result.timeline.start_ns.tolist(), strict=True))
    moment = np.array([start_ns.get(name, 0) for name in graph.op_names])
    priority = by_moment(raised(graph, moment, 1))
    return Proposal(free, Placement(device[of_free.replica], "given", priority))
