"""What people would do for a step of several micro-batches, beside the plan of `best`: the rules that it has asked.

Nothing is planned or simulated here, but bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from gnnplace.bounds.bounds import bound_without_cpus
from gnnplace.choices import BEST
from gnnplace.cluster import Cluster
from gnnplace.formats.placements import Alternatives, AlternativeStep
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.portfolio.candidates import Candidate
from gnnplace.problems import Problem
from gnnplace.report.advice import advice
from gnnplace.result import FEASIBLE, micro_batch_ns

OF_BEST = f"{BEST}: "


def alternatives(problem: Problem, winner: Candidate) -> tuple[Candidate, ...]:
    """The winner of `best` among the rules that it has asked, the least time for a micro-batch first.

    What does not fit comes last, by the bytes beyond the memories. A rule that won is there once. Empty if `best` has
    asked no rules.
    """
    if not winner.rivals:
        return ()
    others = [rival for rival in winner.rivals if rival.planner != winner.planner.removeprefix(OF_BEST)]
    return tuple(sorted((formed(each, problem) for each in (winner, *others)), key=by_time_of_each))


def formed(each: Candidate, problem: Problem) -> Candidate:
    """The candidate with the problem that it placed, also where that is the one that was given."""
    return replace(each, form=each.form or problem, rivals=())


def number_of(each: Candidate) -> int:
    """The micro-batches of a candidate's step."""
    assert each.form is not None
    return each.form.graph.micro_batches


def by_time_of_each(each: Candidate) -> tuple[int, int, float]:
    """A key: what fits comes first, by the time for a micro-batch, then the rest, by the bytes beyond the memories."""
    return each.score.feasibility, each.score.excess_bytes, each.score.step_time_ns / number_of(each)


def described(among: Sequence[Candidate], whole: Cluster) -> Alternatives | None:
    """The `alternatives` as documents have them, with advice; None without any.

    They are by device of the `whole` cluster. One that a constraint leaves out does nothing.
    """
    forms = [each.form for each in among if each.form is not None]
    if not forms:
        return None
    steps = [_step(form, each, whole) for form, each in zip(forms, among, strict=True)]
    plan = next(form for form, step in zip(forms, steps, strict=True) if step.plan)
    return Alternatives(steps=steps, advice=advice(forms[0].cluster, steps), without_cpus_ns=bound_without_cpus(plan))


def _step(form: Problem, each: Candidate, whole: Cluster) -> AlternativeStep:
    names, copies, result = form.cluster.device_names, form.graph.copies, each.result

    def by_device(values: Int64[np.ndarray, " devices"]) -> dict[str, int]:
        return dict.fromkeys(whole.device_names, 0) | dict(zip(names, values.tolist(), strict=True))

    number, peaks = form.graph.micro_batches, result.peak_memory_bytes
    return AlternativeStep(
        planner=each.planner.removeprefix(OF_BEST),
        plan=each.planner.startswith(OF_BEST),
        micro_batches=number,
        copies="together" if copies is None else copies.placed,
        replicas=1 if copies is None else copies.replicas,
        micro_batches_on=by_device(micro_batches_on(form, each.placement)),
        step_time_ns=result.step_time_ns,
        micro_batch_time_ns=micro_batch_ns(result.step_time_ns, number),
        infeasible=None if each.score.feasibility == FEASIBLE else result.infeasible,
        peak_memory_bytes=None if peaks is None else by_device(peaks),
        busy_ns=by_device(result.busy_ns),
        transferred_bytes=result.transferred_bytes,
    )


def micro_batches_on(problem: Problem, placement: Placement) -> Int64[np.ndarray, " devices"]:
    """The number of micro-batches that each device works on."""
    copies, works = problem.graph.copies, problem.graph.kernel
    if copies is None:
        return (np.bincount(placement.device[works], minlength=problem.num_devices) > 0).astype(np.int64)
    works = works & (copies.micro_batch != NONE) & ~copies.added
    pairs = np.unique(np.stack([placement.device[works], copies.micro_batch[works]]), axis=1)
    return np.bincount(pairs[0], minlength=problem.num_devices).astype(np.int64)
