"""Why a step takes as long as it does: its critical chain in words, what would shorten it, and what modules would do
elsewhere.

Everything is read off the simulated step, or simulated: a faster device or link runs the same placement again. A module
that moves takes its variables, gradients and updates with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.cluster import Cluster, Link
from gnnplace.formats import strict_json
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report.chain_words import Step, Stretch, because, shortened, stepped, stretches
from gnnplace.result import StepResult
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import Modules
from gnnplace.units.units import colocation_closure

MOST_SIMULATED_OPS = 4_000_000  # of all moves of modules that are tried: some seconds
FASTER = 2
BATCH = 64  # of simulations


class Change(NamedTuple):
    """The step time if one thing were `FASTER` times as fast, with the same placement."""

    what: str
    step_time_ns: int


class Move(NamedTuple):
    """The step with one module on another device. `infeasible` is the reason why that can't be, or None."""

    module: str
    device: str
    step_time_ns: int | None
    infeasible: str | None


@dataclass(frozen=True)
class Explanation:
    """A step: its critical chain from the start to the end, the time of the chain by place, what would be gained by
    what.

    `changes` and `moves` are sorted by step time. Moves that gain nothing are left out; those that need more memory are
    not.
    """

    step_time_ns: int
    chain: tuple[Stretch, ...]
    places_ns: dict[str, int]
    changes: tuple[Change, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class PartExplanation:
    """A module, several or an op in a step: where it stands, its time on the critical chain, what it waited for, where
    else it could be.

    `work_ns` is by device. `waits` goes back from its first op that computes. `moves` has every other device.
    """

    name: str
    step_time_ns: int
    work_ns: dict[str, int]
    variable_bytes: int
    chain_ns: int
    start_ns: int
    waits: tuple[str, ...]
    moves: tuple[Move, ...]


def explain(problem: Problem, placement: Placement) -> Explanation:
    """Explains a step of a placement. Raises ValueError where it has none (a missing link, an op on a device where it
    is not allowed).

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> found = gp.explain(problem, gp.place(problem, "heft"))
    >>> sum(found.places_ns.values()) == found.step_time_ns == found.chain[-1].end_ns
    True
    """
    step = stepped(problem, placement)
    chain = stretches(step)
    places: dict[str, int] = {}
    for stretch in chain:
        places[stretch.where] = places.get(stretch.where, 0) + stretch.end_ns - stretch.start_ns
    by_share = dict(sorted(places.items(), key=lambda item: -item[1]))
    return Explanation(step.step_time_ns, tuple(shortened(chain)), by_share, _changes(step), _gaining(step))


def explain_part(problem: Problem, placement: Placement, name: str) -> PartExplanation:
    """Explains where a module (`h.0.attn.c_attn`), all modules of a name's beginning (`h.0`), or an op stands, and what
    moving it would do.

    Raises ValueError for a name that is none of these, and where the placement has no step.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> part = gp.explain(problem, gp.place(problem, "heft"), "h.0")
    >>> len(part.moves) == problem.num_devices - len(part.work_ns) or len(part.work_ns) > 1
    True
    """
    step = stepped(problem, placement)
    problem, placement, timeline = step.problem, step.placement, step.timeline
    ops = _named(step, name)
    rows = np.flatnonzero(ops)
    work = np.bincount(placement.device[rows], problem.time_ns[rows, placement.device[rows]], problem.num_devices)
    computing = rows[problem.graph.kernel[rows]] if problem.graph.kernel[rows].any() else rows
    first = int(computing[np.argmin(timeline.start_ns[computing])])
    others = [device for device in range(problem.num_devices) if (placement.device[rows] != device).any()]
    names = problem.cluster.device_names
    return PartExplanation(
        name=name,
        step_time_ns=step.step_time_ns,
        work_ns={names[device]: int(work[device]) for device in np.unique(placement.device[rows])},
        variable_bytes=int(problem.graph.persistent_bytes[rows].sum()),
        chain_ns=int(chain_ns(problem, placement.device, timeline)[rows].sum()),
        start_ns=int(timeline.start_ns[first]),
        waits=tuple(because(step, int(node)) for node in step.waits.chain(first)[:3]),
        moves=tuple(_simulated(step, [(name, ops, device) for device in others])),
    )


def _changes(step: Step) -> tuple[Change, ...]:
    problem, result = step.problem, step.result
    changes: list[Change] = []
    for what, faster in _faster(problem, result):
        (simulated,) = simulate(faster, [step.placement])
        assert simulated.step_time_ns is not None
        changes.append(Change(what, simulated.step_time_ns))
    return tuple(sorted(changes, key=lambda change: change.step_time_ns))


def _faster(problem: Problem, result: StepResult) -> Iterator[tuple[str, Problem]]:
    """Each device that computes and each channel that carries something, `FASTER` times as fast."""
    for device in np.flatnonzero(result.busy_ns).tolist():
        contended = None if problem.contended_ns is None else _divided(problem.contended_ns, device)
        yield (
            problem.cluster.device_names[device],
            Problem(problem.graph, problem.cluster, _divided(problem.time_ns, device), contended),
        )
    assert result.occupied_ns is not None
    for channel in np.flatnonzero(result.occupied_ns).tolist():
        kind, name = problem.cluster.channels[channel]
        what = f"links out of {name}" if kind == "device" else f"channel {name}"
        yield what, replace(problem, cluster=_with_faster(problem.cluster, channel))


def _divided(time_ns: Int64[np.ndarray, "ops devices"], device: int) -> Int64[np.ndarray, "ops devices"]:
    faster_ns = time_ns.copy()
    faster_ns[:, device] = np.maximum(1, faster_ns[:, device] // FASTER)
    return faster_ns


def _with_faster(cluster: Cluster, channel: int) -> Cluster:
    """The links that share a channel, `FASTER` times as fast; their latencies stay."""

    def changed(link: Link) -> Link:
        return replace(
            link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * FASTER, overhead_ns=link.overhead_ns // FASTER
        )

    shared = np.flatnonzero((cluster.link_channel == channel) | (cluster.link_receive_channel == channel))
    links = [changed(link) if index in shared else link for index, link in enumerate(cluster.links)]
    return replace(cluster, links=tuple(links))


def _tried(step: Step) -> list[tuple[str, Bool[np.ndarray, " ops"], int]]:
    """Moves of whole modules, those with most time on the critical chain first, as many as take some seconds."""
    on_chain = np.bincount(
        step.modules.module, chain_ns(step.problem, step.placement.device, step.timeline), step.modules.num_modules
    )
    most = max(step.problem.num_devices, MOST_SIMULATED_OPS // step.problem.num_ops)
    moves: list[tuple[str, Bool[np.ndarray, " ops"], int]] = []
    for module in np.argsort(-on_chain, kind="stable").tolist():
        ops = step.modules.module == module
        moves += [
            (step.modules.names[module], ops, device)
            for device in range(step.problem.num_devices)
            if (step.placement.device[ops] != device).any()
        ]
        if len(moves) >= most:
            break
    return moves[:most]


def _gaining(step: Step) -> tuple[Move, ...]:
    """The moves of whole modules that make the step shorter, the best first."""
    tried = _tried(step)
    moves = [move for start in range(0, len(tried), BATCH) for move in _simulated(step, tried[start : start + BATCH])]
    shorter = [move for move in moves if move.step_time_ns is not None and move.step_time_ns < step.step_time_ns]
    return tuple(sorted(shorter, key=lambda move: move.step_time_ns or 0))


def _simulated(step: Step, moved: list[tuple[str, Bool[np.ndarray, " ops"], int]]) -> list[Move]:
    """Steps with the given ops on the given devices, as far as they are allowed there."""
    names = step.problem.cluster.device_names
    placements = [replace(step.placement, device=_elsewhere(step, ops, device)) for _, ops, device in moved]
    results = simulate(step.problem, placements)
    return [
        Move(name, names[device], result.step_time_ns, result.infeasible)
        for (name, _, device), result in zip(moved, results, strict=True)
    ]


def _elsewhere(step: Step, ops: Bool[np.ndarray, " ops"], device: int) -> Int32[np.ndarray, " ops"]:
    return np.where(ops & step.problem.allowed[:, device], device, step.placement.device).astype(np.int32)


def _named(step: Step, name: str) -> Bool[np.ndarray, " ops"]:
    """The ops of a module, of the modules whose names begin so, or an op with all that is colocated with it."""
    ops = _with_prefix(step.modules, name)
    if ops.any():
        return ops
    graph = step.problem.graph
    if name in graph.op_names:
        closure = colocation_closure(graph)
        return closure == closure[graph.op_names.index(name)]
    raise ValueError(
        strict_json.unknown(
            "module or op of the graph", name, tuple(dict.fromkeys((*step.modules.names, *graph.op_names)))
        )
    )


def _with_prefix(modules: Modules, name: str) -> Bool[np.ndarray, " ops"]:
    begins = [
        index for index, each in enumerate(modules.names) if each == name or each.startswith((f"{name}.", f"{name}/"))
    ]
    return np.isin(modules.module, begins)
