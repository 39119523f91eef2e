"""Other forms of a step of several micro-batches: what people do by hand.

A problem with one replica and copies together leaves its form to `best`: replicas, and copies that stand freely, take
the same micro-batches. Under a constraint a rule counts only where its placement keeps whole what the constraint does,
and consists of stages where these are binding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from gnnplace.baselines.data_parallel.ddp import ddp
from gnnplace.baselines.data_parallel.fsdp import fsdp
from gnnplace.baselines.data_parallel.hybrid import expert_parallel, hybrid
from gnnplace.baselines.data_parallel.layer_shares import layer_shares
from gnnplace.baselines.data_parallel.one_card import one_card
from gnnplace.baselines.pipelines.dp_pp import dp_pp
from gnnplace.baselines.pipelines.pipedream import pipedream
from gnnplace.choices import FREELY
from gnnplace.constraints import Stages
from gnnplace.placement import check
from gnnplace.portfolio import planners
from gnnplace.portfolio.candidates import Candidate, candidate, leaves_form
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal
from gnnplace.step_forms import reformed
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.granularity import runs

Rule = Callable[[Problem, Evaluator], Proposal | None]
RULES: Mapping[str, Rule] = {
    "one-card": one_card,
    "ddp": ddp,
    "fsdp": fsdp,
    "hybrid": hybrid,
    "expert-parallel": expert_parallel,
    "pipedream": pipedream,
    "dp-pp": dp_pp,
}
OURS: Mapping[str, Rule] = {"layer-shares": layer_shares}  # not what people do by hand
EVERY: Mapping[str, Rule] = {**RULES, **OURS}
# what a graph lacks to which a rule does not apply
WITHOUT = {
    "hybrid": "tables", "expert-parallel": "experts", "pipedream": "stages of which one would be replicated",
    "dp-pp": "replicas with as many micro-batches each, two at least, and two devices",
    "layer-shares": "layers with whose shares these devices would end earlier",
}  # fmt: skip


def by_rules(problem: Problem, evaluate: Evaluator, stages: Stages | None = None) -> Iterator[Candidate]:
    """The candidate of each published rule that applies to the problem."""
    yield from _by(RULES, problem, evaluate, stages)


def by_ours(problem: Problem, evaluate: Evaluator, stages: Stages | None = None) -> Iterator[Candidate]:
    """The candidate of each of our own rules that applies to the problem."""
    yield from _by(OURS, problem, evaluate, stages)


def _by(names: Iterable[str], problem: Problem, evaluate: Evaluator, stages: Stages | None) -> Iterator[Candidate]:
    for name in names:
        proposed = _by_rule(name, problem, evaluate)
        if proposed is not None and breaks(problem, proposed, stages) is None:
            yield proposed


def by_pipelines(problem: Problem, evaluate: Evaluator, stages: Stages | None = None) -> Iterator[Candidate]:
    """The candidate of each schedule of a pipeline, which leaves the form as it is."""
    for name in planners.PIPELINES:
        proposed = _by_pipeline(name, problem, evaluate)
        if breaks(problem, proposed, stages) is None:
            yield proposed


def _by_pipeline(name: str, problem: Problem, evaluate: Evaluator) -> Candidate:
    start = time.perf_counter_ns()
    placement = planners.PIPELINES[name](problem, evaluate)
    planning_ns = time.perf_counter_ns() - start
    return replace(candidate(problem, evaluate, name, placement), planning_ns=planning_ns)


def all_rules(problem: Problem, evaluate: Evaluator, stages: Stages | None = None) -> Iterator[Candidate]:
    """The candidates of all rules and schedules of pipelines; of one micro-batch that of the best heuristic."""
    if leaves_form(problem):
        yield from _by(EVERY, problem, evaluate, stages)
        yield from by_pipelines(problem, evaluate, stages)
    else:
        yield candidate(problem, evaluate, "heuristic", planners.best_heuristic(problem, evaluate))


def breaks(problem: Problem, proposed: Candidate, stages: Stages | None = None) -> str | None:
    """How a candidate breaks the constraint of a problem and its binding stages, a line; None if it keeps to them.

    Stages bind each replica. Where copies stand freely there are none.
    """
    form, placement = proposed.form or problem, proposed.placement
    copies = form.graph.copies
    if copies is not None and copies.part is not None and (fault := check(form, placement)) is not None:
        return fault
    if stages is None or not stages.binding or copies is None:
        return None
    number = None if copies.placed in FREELY else runs(form.graph, placement.device)
    if number is None:
        return "a device has several runs of modules, or a module is on several devices"
    return None if number <= stages.most else f"{number} stages, where at most {stages.most} are allowed"


def again(name: str, problem: Problem, number: int, evaluate: Evaluator) -> Candidate | None:
    """The candidate of a rule or a pipeline for so many micro-batches of the problem's graph, in whatever form it is.

    None for another name, and for a rule that does not apply.
    """
    copies = problem.graph.copies
    if copies is None or number < 2 or name not in {*EVERY, *planners.PIPELINES}:
        return None
    posed = reformed(problem, Parallelism(number, shared=copies.shared).of(copies.original))
    return (
        _by_rule(name, posed, evaluate) if name in EVERY else replace(_by_pipeline(name, posed, evaluate), form=posed)
    )


def by_rule(name: str, problem: Problem, evaluate: Evaluator, stages: Stages | None = None) -> Candidate:
    """The candidate of a rule. Raises ValueError if it does not apply to the problem, or breaks its constraint."""
    if problem.graph.copies is None:
        raise ValueError(f"planner {name!r}: needs a step of several micro-batches (--micro-batches 8)")
    if not leaves_form(problem):
        raise ValueError(f"planner {name!r}: chooses replicas and copies itself; leave them open")
    if (proposed := _by_rule(name, problem, evaluate)) is None:
        raise ValueError(f"planner {name!r}: {problem.graph.name} has no {WITHOUT[name]}")
    if (fault := breaks(problem, proposed, stages)) is not None:
        raise ValueError(f"planner {name!r}: does not keep to the constraint: {fault}")
    return proposed


def _by_rule(name: str, problem: Problem, evaluate: Evaluator) -> Candidate | None:
    start = time.perf_counter_ns()
    if (proposal := EVERY[name](problem, evaluate)) is None:
        return None
    planning_ns, form = time.perf_counter_ns() - start, proposal.problem
    return replace(candidate(form, evaluate, name, proposal.placement), form=form, planning_ns=planning_ns)
