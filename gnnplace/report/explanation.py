"""Why a step takes as long as it does: its critical chain in words, and changes that would shorten it.

Everything comes from simulated steps. A change is a faster device or channel with the same placement, or a module on
another device, together with its variables, gradients and updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.cluster import MAX_RATE, Cluster, Link
from gnnplace.formats import strict_json
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report import step_words, terminal
from gnnplace.report.chain_words import Step, Stretch, because, shortened, stepped, stretches
from gnnplace.result import StepResult
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import Modules, of_pytorch
from gnnplace.units.units import colocation_closure

MOST_SIMULATED_OPS = 4_000_000  # ops in all simulations of moved modules: some seconds
FASTER = 2
BATCH = 64  # placements in one call of the simulator


class Change(NamedTuple):
    """The step time with one device or channel `FASTER` times as fast and the same placement."""

    what: str
    step_time_ns: int


class Move(NamedTuple):
    """The step with one module on another device; `infeasible` is the reason why that is infeasible, or None."""

    module: str
    device: str
    step_time_ns: int | None
    infeasible: str | None


class ModuleMove(NamedTuple):
    """A move to simulate: the ops of a module (a mask), and the device that they go to."""

    module: str
    ops: Bool[np.ndarray, " ops"]
    device: int


@dataclass(frozen=True)
class Explanation:
    """The critical chain of a step from its start to its end, the chain's time by place, and what would shorten it.

    `changes` and `moves` are sorted by step time. `moves` has only moves that make the step shorter, even if they
    exceed a memory.
    """

    step_time_ns: int
    chain: tuple[Stretch, ...]
    places_ns: dict[str, int]
    changes: tuple[Change, ...]
    moves: tuple[Move, ...]


@dataclass(frozen=True)
class PartExplanation:
    """A part of the graph (modules, or an op) in a step: its devices, its time on the critical chain, its waits.

    `work_ns` is by device. `waits` goes back from its first op that has a kernel. `moves` has every other device.
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
    """Explains the step of a placement.

    Raises ValueError if it has no step: a link is missing, or an op is not allowed on its device.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> step = gp.explain(problem, gp.place(problem, "heft"))
    >>> sum(step.places_ns.values()) == step.step_time_ns == step.chain[-1].end_ns
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
    """Explains a part of a step: a module (`h.0.attn.c_attn`), all modules below a name (`h.0`), or an op.

    Raises ValueError for an unknown name, and if the placement has no step.

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
        moves=tuple(_simulated(step, [ModuleMove(name, ops, device) for device in others])),
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
    """The problems with one device or channel `FASTER` times as fast, for every one that the step uses."""
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
    """The cluster with the links of one channel `FASTER` times as fast; their latencies stay.

    The largest rate of a link, gigabytes in a nanosecond, is not exceeded.
    """

    def changed(link: Link) -> Link:
        bandwidth = min(MAX_RATE, link.bandwidth_bytes_per_s * FASTER)
        return replace(link, bandwidth_bytes_per_s=bandwidth, overhead_ns=link.overhead_ns // FASTER)

    shared = np.flatnonzero((cluster.link_channel == channel) | (cluster.link_receive_channel == channel))
    links = [changed(link) if index in shared else link for index, link in enumerate(cluster.links)]
    return replace(cluster, links=tuple(links))


def _gaining(step: Step) -> tuple[Move, ...]:
    """The moves of whole modules that make the step shorter, the best first."""
    candidates = _module_moves(step)
    batches = [candidates[start : start + BATCH] for start in range(0, len(candidates), BATCH)]
    moves = [move for batch in batches for move in _simulated(step, batch)]
    shorter = [move for move in moves if move.step_time_ns is not None and move.step_time_ns < step.step_time_ns]
    return tuple(sorted(shorter, key=lambda move: move.step_time_ns or 0))


def _module_moves(step: Step) -> list[ModuleMove]:
    """Moves of whole modules, as many as take some seconds; modules with most time on the critical chain come first."""
    on_chain = np.bincount(
        step.modules.module, chain_ns(step.problem, step.placement.device, step.timeline), step.modules.num_modules
    )
    most = max(step.problem.num_devices, MOST_SIMULATED_OPS // step.problem.num_ops)
    moves: list[ModuleMove] = []
    movable = ~np.isin(np.arange(step.modules.num_modules), _colocated(step))
    for module in [each for each in np.argsort(-on_chain, kind="stable").tolist() if movable[each]]:
        ops = step.modules.module == module
        moves += [
            ModuleMove(step.modules.names[module], ops, device)
            for device in range(step.problem.num_devices)
            if (step.placement.device[ops] != device).any()
        ]
        if len(moves) >= most:
            break
    return moves[:most]


def _colocated(step: Step) -> Int32[np.ndarray, " modules"]:
    """The modules that are colocated with others: those of a replica that stands on one device."""
    group = step.problem.graph.colocation.index
    grouped = np.flatnonzero(group != NONE)
    pairs = np.unique(np.stack([group[grouped], step.modules.module[grouped]]), axis=1)
    return pairs[1, np.bincount(pairs[0])[pairs[0]] > 1]


def _simulated(step: Step, moves: list[ModuleMove]) -> list[Move]:
    """Simulates the step after each move. Ops that are not allowed on the new device stay where they are."""
    names = step.problem.cluster.device_names
    results = simulate(step.problem, [replace(step.placement, device=_devices_after(step, move)) for move in moves])
    return [
        Move(move.module, names[move.device], result.step_time_ns, result.infeasible)
        for move, result in zip(moves, results, strict=True)
    ]


def _devices_after(step: Step, move: ModuleMove) -> Int32[np.ndarray, " ops"]:
    moved = move.ops & step.problem.allowed[:, move.device]
    return np.where(moved, move.device, step.placement.device).astype(np.int32)


def _named(step: Step, name: str) -> Bool[np.ndarray, " ops"]:
    """The ops of a module, of all modules below a name, or of an op and all ops that are colocated with it."""
    graph = step.problem.graph
    ops = _with_prefix(step.modules, name, (".",) if of_pytorch(graph) else (".", "/"))
    if ops.any():
        return ops
    if name in graph.op_names:
        closure = colocation_closure(graph)
        return closure == closure[graph.op_names.index(name)]
    raise ValueError(
        strict_json.unknown(
            "module or op of the graph", name, tuple(dict.fromkeys((*step.modules.names, *graph.op_names)))
        )
    )


def _with_prefix(modules: Modules, name: str, separators: tuple[str, ...]) -> Bool[np.ndarray, " ops"]:
    """The ops of the module `name` and of the modules inside it, whose names go on after a separator."""
    inside = tuple(f"{name}{separator}" for separator in separators)
    rows = [row for row, module in enumerate(modules.names) if module == name or module.startswith(inside)]
    return np.isin(modules.module, rows)


Row = tuple[str, ...]
CHAIN_HEADER = ("ms", "of the step", "where", "what", "ops", "why it began then")
PLACES_HEADER = ("where", "ms", "of the step")
MOVES_HEADER = ("module", "on", "step ms", "change", "feasible")


def chain_table(explanation: Explanation, graph: ComputationGraph) -> tuple[Row, list[Row]]:
    """The critical chain as a header and rows of text. A step of several micro-batches has a column that names them."""
    if graph.copies is None:
        return CHAIN_HEADER, _chain_rows(explanation)
    header = (*CHAIN_HEADER[:4], step_words.one(graph), *CHAIN_HEADER[4:])
    ends = [dict.fromkeys((*part.micro_batches[:1], *part.micro_batches[-1:])) for part in explanation.chain]
    cells = [" ... ".join(map(str, each)) or "-" for each in ends]
    return header, [(*row[:4], cell, *row[4:]) for row, cell in zip(_chain_rows(explanation), cells, strict=True)]


def _chain_rows(explanation: Explanation) -> list[Row]:
    return [
        (
            f"{terminal.ms(part.start_ns)} - {terminal.ms(part.end_ns)}",
            terminal.percent((part.end_ns - part.start_ns) / explanation.step_time_ns),
            part.where,
            part.what,
            str(part.nodes),
            part.why,
        )
        for part in explanation.chain
    ]


def places_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """The chain by place as rows of text, under `PLACES_HEADER`."""
    return [
        (place, terminal.ms(time_ns), terminal.percent(time_ns / explanation.step_time_ns))
        for place, time_ns in explanation.places_ns.items()
    ]


def changes_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """What is faster, the step time in ms and its change, as rows of text."""
    before_ns = explanation.step_time_ns
    return [
        (each.what, terminal.ms(each.step_time_ns), terminal.change(each.step_time_ns, before_ns))
        for each in explanation.changes
    ]


def moves_rows(moves: Sequence[Move], before_ns: int) -> list[tuple[str, ...]]:
    """Moves as rows of text, under `MOVES_HEADER`; `before_ns` is the step time without them."""
    return [
        (
            each.module,
            each.device,
            terminal.ms(each.step_time_ns),
            terminal.change(each.step_time_ns, before_ns),
            each.infeasible or "yes",
        )
        for each in moves
    ]
