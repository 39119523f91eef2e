"""A plan of several micro-batches beside a rule: what devices do, what is sent, what stands elsewhere, and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64
from scipy.optimize import linear_sum_assignment

from gnnplace.graph import CONTROL, NONE, Copies
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.alternatives import HELPS, amount
from gnnplace.result import StepResult, Timeline
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules

MOST_DEVICES, MOST_MODULES = 5, 3  # in the table, and in a sentence
HALF = 0.5  # of a module's work for a micro-batch: with more of it elsewhere, the copy of the module is elsewhere
KINDS = ("weights", "gradients", "activations")


class Day(NamedTuple):
    """The shares of the step in which a device computes, waits for something it sends or receives, and does neither."""

    busy: float
    waiting: float
    idle: float


class Account(NamedTuple):
    """A step by device (accelerators) and by what is sent.

    Attributes:
        sent_bytes: of `KINDS`; gradients are what sums, rings and updates receive
        full: the device whose memory is fullest, with the share of it that is used at the peak
        cpus: the share of the step in which each CPU computes
    """

    name: str
    micro_batches: int
    step_time_ns: int
    days: dict[str, Day]
    sent_bytes: dict[str, int]
    peak_memory_bytes: dict[str, int]
    full: tuple[str, float]
    cpus: dict[str, float]

    @property
    def each_ns(self) -> float:
        """The time for a micro-batch."""
        return self.step_time_ns / self.micro_batches

    @property
    def busy(self) -> float:
        """The mean share in which devices compute."""
        return sum(day.busy for day in self.days.values()) / len(self.days)


class Elsewhere(NamedTuple):
    """The copies of modules, one for each micro-batch, of which more than `HALF` of the work stands elsewhere.

    Micro-batches are alike, so each is compared with the rule's that is most like it. `work` is the share of all work
    that stands elsewhere, `modules` the number of copies of each module, most
    first.
    """

    copies: int
    of: int
    work: float
    modules: dict[str, int]


@dataclass(frozen=True, eq=False)
class Beside:
    """A plan's account beside that of a rule, and what the plan puts elsewhere."""

    plan: Account
    rule: Account
    elsewhere: Elsewhere


def beside(plan: tuple[Problem, Placement], rule: tuple[Problem, Placement], name: str) -> Beside:
    """A plan beside the rule of a name, both of the same graph on the same cluster.

    Raises ValueError if one of them has no step, or is a step of one micro-batch.
    """
    return Beside(_account("this plan", *plan), _account(name, *rule), _elsewhere(*plan, *rule))


def _account(name: str, problem: Problem, placement: Placement) -> Account:
    (result,) = simulate(problem, [placement], timeline=True)
    timeline, peaks = result.timeline, result.peak_memory_bytes
    if problem.graph.copies is None or timeline is None or peaks is None or result.step_time_ns is None:
        raise ValueError(f"{name}: has no step of several micro-batches: {result.infeasible}")
    names, memory = problem.cluster.device_names, problem.cluster.memory_bytes
    share = peaks / np.maximum(1, memory)
    full, accelerators = int(np.argmax(share)), problem.cluster.accelerators
    days = {device: _day(placement, timeline, result, device) for device in range(problem.num_devices)}
    return Account(
        name,
        problem.graph.micro_batches,
        result.step_time_ns,
        {names[device]: days[device] for device in accelerators.tolist()},
        _sent(problem, problem.graph.copies, placement, timeline),
        dict(zip(names, peaks.tolist(), strict=True)),
        (names[full], float(share[full])),
        {names[device]: day.busy for device, day in days.items() if device not in accelerators},
    )


def _day(placement: Placement, timeline: Timeline, result: StepResult, device: int) -> Day:
    here = placement.device == device
    moved = (timeline.transfer_src == device) | (timeline.transfer_dst == device)
    arrived_ns = np.maximum(timeline.transfer_end_ns, timeline.receive_end_ns)
    busy = _covered_ns(timeline.start_ns[here], timeline.end_ns[here])
    begins = np.concatenate([timeline.start_ns[here], timeline.transfer_start_ns[moved]])
    either = _covered_ns(begins, np.concatenate([timeline.end_ns[here], arrived_ns[moved]]))
    step = max(1, result.step_time_ns or 1)
    return Day(busy / step, (either - busy) / step, (step - either) / step)


def _covered_ns(start_ns: Int64[np.ndarray, " spans"], end_ns: Int64[np.ndarray, " spans"]) -> int:
    """The length of the union of spans of time."""
    if not len(start_ns):
        return 0
    order = np.argsort(start_ns, kind="stable")
    start, end = start_ns[order], np.maximum.accumulate(end_ns[order])
    gaps = np.maximum(0, start[1:] - end[:-1])
    return int(end[-1] - start[0] - gaps.sum())


def _sent(problem: Problem, copies: Copies, placement: Placement, timeline: Timeline) -> dict[str, int]:
    graph, output = problem.graph, timeline.transfer_output
    source = graph.output_op[output]
    once, fetch = copies.micro_batch == NONE, graph.kind.among(["fetch"])
    weights = (fetch | (once & ~copies.added & ~graph.phase.among(["update"])))[source]
    to_a_copy = np.flatnonzero((graph.edge_output != CONTROL) & (~once & ~copies.added)[graph.edge_dst])
    read = _pairs(problem, graph.edge_data[to_a_copy], placement.device[graph.edge_dst[to_a_copy]])
    activations = ~weights & np.isin(_pairs(problem, output, timeline.transfer_dst), read)
    size = graph.output_bytes[output]
    sums = [int(size[which].sum()) for which in (weights, ~weights & ~activations, activations)]
    return dict(zip(KINDS, sums, strict=True))


def _pairs(
    problem: Problem, output: Int64[np.ndarray, " n"] | Int32[np.ndarray, " n"], device: Int32[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"]:
    return output.astype(np.int64) * problem.num_devices + device


def _elsewhere(problem: Problem, placement: Placement, other: Problem, rule: Placement) -> Elsewhere:
    mine, theirs = _devices(problem, placement), _devices(other, rule)
    theirs = np.tile(theirs, (1, -(-mine.shape[1] // theirs.shape[1])))
    copies = problem.graph.copies
    assert copies is not None
    work = np.zeros(copies.original.num_ops)
    work[copies.source[~copies.added]] = problem.time_ns[~copies.added].min(axis=1)
    work *= (mine[:, 0] != NONE) & copies.original.kernel
    same = np.array([[work[a == b].sum() for b in theirs.T] for a in mine.T])
    rows, like = linear_sum_assignment(-same)
    away = mine[:, rows] != theirs[:, like]
    return _counted(copies, work, away)


def _counted(copies: Copies, work: Float[np.ndarray, " ops"], away: Bool[np.ndarray, "ops micro_batches"]) -> Elsewhere:
    parts = modules(copies.original)
    total = np.bincount(parts.module, work, parts.num_modules)
    moved = np.stack([np.bincount(parts.module, work * column, parts.num_modules) for column in away.T], axis=1)
    gone = (moved > HALF * total[:, None]) & (total > 0)[:, None]
    number = gone.sum(axis=1)
    most = [int(module) for module in np.argsort(-number, kind="stable") if number[module]]
    share = float(moved.sum() / max(1.0, total.sum() * away.shape[1]))
    names = {parts.names[module]: int(number[module]) for module in most}
    return Elsewhere(int(number.sum()), int((total > 0).sum()) * away.shape[1], share, names)


def _devices(problem: Problem, placement: Placement) -> Int64[np.ndarray, "ops micro_batches"]:
    """The device of each op of a micro-batch, for each of them; `NONE` for what runs once."""
    copies = problem.graph.copies
    assert copies is not None
    device = np.full((copies.original.num_ops, copies.micro_batches), NONE, dtype=np.int64)
    which = np.flatnonzero((copies.micro_batch != NONE) & ~copies.added)
    device[copies.source[which], copies.micro_batch[which]] = placement.device[which]
    return device


def header(pair: Beside) -> tuple[str, str, str]:
    """The header of `rows`."""
    return "", pair.plan.name, pair.rule.name


def rows(pair: Beside) -> list[tuple[str, str, str]]:
    """At most 11 rows of text: times, what devices do, what is sent, memory."""

    def row(what: str, of: Callable[[Account], str]) -> tuple[str, str, str]:
        return what, of(pair.plan), of(pair.rule)

    days = [row(f"{device}: computes / waits / idle, %", partial(_percents, device=device)) for device in _shown(pair)]
    sent = [row(f"{kind} sent", partial(_amount, kind=kind)) for kind in KINDS]
    return [
        row("step", lambda each: terminal.milliseconds(each.step_time_ns)),
        row("a micro-batch", lambda each: terminal.milliseconds(round(each.each_ns))),
        *days,
        *sent,
        row("fullest memory", lambda each: f"{100 * each.full[1]:.0f} % of {each.full[0]}"),
    ]


def sentences(pair: Beside) -> list[str]:
    """What the numbers say, in a few sentences."""
    plan, rule, away = pair.plan, pair.rule, pair.elsewhere
    change = 100 * (1 - plan.each_ns / rule.each_ns)
    than = f"takes {abs(change):.1f} % {'less' if change >= 0 else 'more'} for a micro-batch than {rule.name}"
    computing = f"its devices compute {100 * plan.busy:.0f} % of the step on average, those of {rule.name} "
    lines = [f"This plan {than}: {computing}{100 * rule.busy:.0f} %."]
    if away.copies:
        most = ", ".join(f"{name} ({number})" for name, number in [*away.modules.items()][:MOST_MODULES])
        more = " and others" if len(away.modules) > MOST_MODULES else ""
        lines.append(
            f"{away.copies:,} of {away.of:,} copies of modules, {100 * away.work:.0f} % of the work, stand elsewhere "
            f"than {rule.name} would put them: of {most}{more}."
        )
    for cpu, busy in plan.cpus.items():
        if busy - rule.cpus[cpu] >= HELPS:
            theirs = f"for {100 * rule.cpus[cpu]:.0f} %" if rule.cpus[cpu] >= HELPS else "leaves it idle"
            lines.append(f"{cpu} computes for {100 * busy:.0f} % of the step, {rule.name} {theirs}.")
    if sends := [words for kind in KINDS if (words := _difference(pair, kind))]:
        lines.append(f"It sends {', '.join(sends)}.")
    return lines


def _difference(pair: Beside, kind: str) -> str:
    """`12.0 MiB more weights`; nothing where both send as much."""
    more = pair.plan.sent_bytes[kind] - pair.rule.sent_bytes[kind]
    return f"{amount(abs(more))} {'more' if more > 0 else 'less'} of {kind}" if more else ""


def _percents(account: Account, device: str) -> str:
    return " / ".join(f"{100 * share:.0f}" for share in account.days[device])


def _amount(account: Account, kind: str) -> str:
    return amount(account.sent_bytes[kind])


def _shown(pair: Beside) -> list[str]:
    """The devices of the table: all, or those whose computing differs most."""
    differs = {name: abs(day.busy - pair.rule.days[name].busy) for name, day in pair.plan.days.items()}
    most = sorted(differs, key=lambda name: -differs[name])[:MOST_DEVICES]
    return [name for name in differs if name in most]
