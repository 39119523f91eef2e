"""Constraints on placements.

A constraint turns a problem into another one: what must stay whole becomes a colocation group, and forbidden devices
leave the cluster. So planners, searches, policies and bounds respect constraints without knowing of them. Other forms
of a step of several micro-batches keep to it, too (`step_forms`, `units/whole`). Stages need one rule more: each device
has one run of consecutive modules. `Stages` says where cuts are possible, and `portfolio/stages` searches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.cluster import Cluster
from gnnplace.formats import strict_json
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.step_forms import reformed
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.granularity import GRANULARITIES, Granularity
from gnnplace.units.modules import Modules, modules
from gnnplace.units.units import colocation_closure
from gnnplace.units.variables import merged
from gnnplace.units.whole import tied


@dataclass(frozen=True)
class Constraint:
    """A rule for placements; by default it allows all of them. Raises ValueError.

    `keep_whole` names modules, or their ancestors (`h.0`). A wildcard stands for a part of a name (`h.*`). Everything
    under a name stays on one device, and names joined by `+` (`wte+lm_head`) stay on the same device. If there are
    `devices`, only these may be used; `accelerators_only` leaves out the CPUs. Stages have at most `max_cuts`
    boundaries.
    """

    granularity: Granularity = "op"
    keep_whole: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    accelerators_only: bool = False
    max_cuts: int | None = None

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise ValueError(f"granularity: {strict_json.unknown('granularity', self.granularity, GRANULARITIES)}")
        if self.max_cuts is not None and self.granularity != "stage":
            raise ValueError(
                f"max_cuts: {self.max_cuts} boundaries of stages, but the granularity is {self.granularity!r}"
            )
        if self.max_cuts is not None and self.max_cuts < 0:
            raise ValueError(f"max_cuts: {self.max_cuts} is negative")

    def finer(self) -> Iterator[Constraint]:
        """This constraint at each finer granularity, the coarsest first."""
        for name in reversed(GRANULARITIES[: GRANULARITIES.index(self.granularity)]):
            yield replace(self, granularity=name, max_cuts=None)

    def __str__(self) -> str:
        """The constraint in words; empty if it allows everything."""
        words = {"op": [], "module": ["whole modules"], "stage": ["stages"]}[self.granularity]
        words += [] if self.max_cuts is None else [f"at most {self.max_cuts} cuts"]
        words += [f"{', '.join(self.keep_whole)} whole"] if self.keep_whole else []
        words += [f"on {', '.join(self.devices)}"] if self.devices else []
        words += ["accelerators only"] if self.accelerators_only else []
        return "; ".join(words)


@dataclass(frozen=True, eq=False)
class Stages:
    """Where stages may be cut. A stage is a run of consecutive items on one device.

    An item is a run of modules that no cut may divide; `item[i]` is the item of op i. There are at most `most` stages.
    If `binding`, a placement must consist of stages; otherwise of whole modules, which stages are.
    """

    item: Int64[np.ndarray, " ops"]
    num_items: int
    most: int
    binding: bool


@dataclass(frozen=True, eq=False)
class Constrained:
    """A problem under a constraint: `problem` has some of the devices of `whole`, the problem without constraint.

    `device[d]` is the index in `whole` of device d of `problem`. `of_whole` and `within` translate placements.
    """

    whole: Problem
    problem: Problem
    device: Int32[np.ndarray, " devices"]
    stages: Stages | None = None

    def of_whole(self, placement: Placement) -> Placement:
        """The placement of the whole problem that a placement of `problem` means."""
        return replace(placement, device=self.device[placement.device])

    def formed(self, form: Problem) -> Constrained:
        """Another form of `problem`, a step of several micro-batches, and the same form of the whole problem."""
        if self.problem is self.whole:
            return Constrained(form, form, self.device)
        copies = form.graph.copies
        assert copies is not None
        graph = Parallelism.in_graph(form.graph).of(copies.original)
        return Constrained(reformed(self.whole, graph), form, self.device)

    def within(self, placement: Placement) -> Placement:
        """The placement of `problem` that a placement of the whole problem means.

        Raises ValueError if it breaks the constraint; stages are not checked.
        """
        number = np.full(self.whole.num_devices, NONE, dtype=np.int32)
        number[self.device] = np.arange(len(self.device))
        if (number[placement.device] == NONE).any():
            name = self.whole.cluster.device_names[int(placement.device[np.argmin(number[placement.device])])]
            raise ValueError(f"start: it uses {name}, which the constraint leaves out")
        inner = replace(placement, device=number[placement.device])
        if (fault := check(self.problem, inner)) is not None:
            raise ValueError(f"start: {fault}")
        return inner


def constrained(problem: Problem, constraint: Constraint) -> Constrained:
    """The problem under a constraint.

    Raises ValueError (one line) for an unknown name, and if no usable device is allowed for all ops of a group that
    must stay together.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> whole = gp.constrained(problem, gp.Constraint("module", devices=("gpu:0", "gpu:1")))
    >>> whole.problem.cluster.device_names, gp.lower_bound(whole.problem) >= gp.lower_bound(problem)
    (('gpu:0', 'gpu:1'), True)
    """
    constraint, usable = _for_runtime(problem, constraint), np.asarray(problem.allowed.any(axis=0))
    if constraint == Constraint() and (problem.graph.runtime is None or usable.all()):
        return Constrained(problem, problem, np.arange(problem.num_devices, dtype=np.int32))
    device = _devices(problem.cluster, constraint)
    if problem.graph.runtime is not None:
        device = _usable(problem, device, usable)
    graph, stages = _tied(problem.graph, constraint, len(device))
    posed = _on(problem, graph, device)
    _require_devices(posed, constraint)
    return Constrained(problem, posed, device, stages)


def _for_runtime(problem: Problem, constraint: Constraint) -> Constraint:
    """The constraint with the granularity and the devices that the runtime of the graph needs.

    A pipeline of several micro-batches may give a device several stages, of whole modules.
    """
    graph = problem.graph
    executed = graph.original.executed
    if executed is None:
        return constraint
    finest = "module" if executed.granularity == "stage" and graph.micro_batches > 1 else executed.granularity
    coarser = max(constraint.granularity, finest, key=GRANULARITIES.index)
    accelerates = executed.accelerators_only and any(device.kind != "cpu" for device in problem.cluster.devices)
    only = constraint.accelerators_only or accelerates
    return replace(constraint, granularity=coarser, accelerators_only=only)


def on_devices(problem: Problem, device: Int32[np.ndarray, " devices"]) -> Constrained:
    """The problem on some of its devices, with the same graph. Some ops may be allowed on none of them."""
    return Constrained(problem, _on(problem, problem.graph, device), device)


def _on(problem: Problem, graph: ComputationGraph, device: Int32[np.ndarray, " devices"]) -> Problem:
    contended = None if problem.contended_ns is None else problem.contended_ns.take(device, axis=1)
    return Problem(graph, _part(problem.cluster, device), problem.time_ns.take(device, axis=1), contended)


def _devices(cluster: Cluster, constraint: Constraint) -> Int32[np.ndarray, " devices"]:
    for name in constraint.devices:
        if name not in cluster.device_names:
            raise ValueError(f"devices: {strict_json.unknown(f'device of {cluster.name}', name, cluster.device_names)}")
    used = [
        index
        for index, device in enumerate(cluster.devices)
        if (not constraint.devices or device.name in constraint.devices)
        and not (constraint.accelerators_only and device.kind == "cpu")
    ]
    if not used:
        raise ValueError(
            f"accelerators_only: {', '.join(constraint.devices or cluster.device_names)} are no accelerators"
        )
    return np.array(used, dtype=np.int32)


def _usable(
    problem: Problem, device: Int32[np.ndarray, " devices"], usable: Bool[np.ndarray, " all_devices"]
) -> Int32[np.ndarray, " used"]:
    """The devices that a runtime can use. Raises ValueError if there is none."""
    if not usable[device].any():
        named = ", ".join(problem.cluster.device_names[number] for number in device.tolist())
        raise ValueError(f"devices: {problem.graph.runtime} computes on none of {named}")
    return device[usable[device]]


def _part(cluster: Cluster, device: Int32[np.ndarray, " devices"]) -> Cluster:
    """The cluster reduced to some of its devices and the links between them."""
    if len(device) == cluster.num_devices:
        return cluster
    devices = tuple(cluster.devices[index] for index in device.tolist())
    names = {each.name for each in devices}
    return Cluster(cluster.name, devices, tuple(link for link in cluster.links if {link.src, link.dst} <= names))


def _tied(graph: ComputationGraph, constraint: Constraint, devices: int) -> tuple[ComputationGraph, Stages | None]:
    """The graph with a colocation group for everything that must stay whole, and its stages unless it may be cut by op.

    `devices` is the number of usable devices.
    """
    one, module_map = graph.original, modules(graph.original)
    keys = [np.where(members[module_map.module], 0, NONE) for members in _kept_whole(module_map, constraint.keep_whole)]
    keys += [] if graph.copies is None or graph.copies.part is None else [graph.copies.part]
    if constraint.granularity == "op":
        return (tied(graph, _joined(keys)) if keys else graph), None
    part = _joined([module_map.module.astype(np.int64), *keys])
    item, binding = _items(module_map, merged(colocation_closure(one), part)), constraint.granularity == "stage"
    most = devices if constraint.max_cuts is None else min(devices, constraint.max_cuts + 1)
    return tied(graph, _joined([part, item]) if binding else part), _stages(graph, item, most, binding)


def _joined(keys: Sequence[Int64[np.ndarray, " ops"]]) -> Int64[np.ndarray, " ops"]:
    """The parts of ops that stay together because they share a key other than `NONE`; `NONE` for ops without one."""
    label = np.arange(len(keys[0]))
    for key in keys:
        label = merged(label, key)
    return np.where(np.max(keys, axis=0) == NONE, NONE, label)


def _stages(graph: ComputationGraph, item: Int64[np.ndarray, " ops_of_one"], most: int, binding: bool) -> Stages:
    """The stages of a graph whose micro-batches have these items. Those of a replica follow those of the one before."""
    copies, number = graph.copies, int(item.max()) + 1
    if copies is None:
        return Stages(item, number, most, binding)
    return Stages(item[copies.source] + copies.replica * number, number * copies.replicas, most, binding)


def _kept_whole(module_map: Modules, names: Sequence[str]) -> Iterator[Bool[np.ndarray, " modules"]]:
    """The sets of modules that stay together.

    A name gives one set, a name with wildcards a set for each name that matches, and names joined by `+` a single set.
    Raises ValueError for a name of no module.
    """
    parts = [re.split(r"[/.]", name) for name in module_map.names]
    for name in names:
        summands = [_matches(module_map, parts, summand) for summand in name.split("+")]
        yield from summands[0] if len(summands) == 1 else [np.logical_or.reduce([*chain(*summands)])]


def _matches(module_map: Modules, parts: list[list[str]], name: str) -> list[Bool[np.ndarray, " modules"]]:
    """The modules under each name that matches `name`, which may have wildcards. Raises ValueError if none does."""
    pattern = re.split(r"[/.]", name)
    members: dict[tuple[str, ...], Bool[np.ndarray, " modules"]] = {}
    for module, part in enumerate(parts):
        if len(part) >= len(pattern) and all(map(fnmatchcase, part, pattern)):
            members.setdefault(tuple(part[: len(pattern)]), np.zeros(len(parts), dtype=bool))[module] = True
    if not members:
        raise ValueError(f"keep_whole: {strict_json.unknown('module', name, module_map.names)}")
    return list(members.values())


def _items(module_map: Modules, label: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The item of each op. Modules that must stay together, and all modules between them, are one item.

    Ops with equal `label` stay together. Items keep the order of the modules.
    """
    first, last = np.full(len(label), module_map.num_modules), np.full(len(label), NONE)
    np.minimum.at(first, label, module_map.module)
    np.maximum.at(last, label, module_map.module)
    inside = np.zeros(module_map.num_modules + 1, dtype=np.int64)  # how many spans cross the cut before each module
    np.add.at(inside, first[last > first] + 1, 1)
    np.subtract.at(inside, last[last > first] + 1, 1)
    starts = np.cumsum(inside)[:-1] == 0
    return (np.cumsum(starts) - 1)[module_map.module]


def _require_devices(problem: Problem, constraint: Constraint) -> None:
    """Raises ValueError if an op is allowed on no device, or the ops of a group have no allowed device in common."""
    graph, names = problem.graph, ", ".join(problem.cluster.device_names)
    if not (possible := problem.allowed.any(axis=1)).all():
        raise ValueError(f"devices: op {graph.op_names[int(np.argmin(possible))]!r} is allowed on none of {names}")
    group = colocation_closure(graph)
    legal = np.ones(problem.allowed.shape, dtype=bool)
    np.logical_and.at(legal, group, problem.allowed)
    torn = np.flatnonzero(~legal.any(axis=1))
    if len(torn):
        # one op for each set of allowed devices, the last
        example = {_named(problem, op): graph.op_names[op] for op in np.flatnonzero(group == group[torn[0]]).tolist()}
        ways = [f"{name!r} by {devices}" for devices, name in example.items()]
        what = f"granularity: {graph.colocation[int(torn[0])]!r} has to be whole"
        raise ValueError(
            f"{what}, but its ops are allowed by different devices ({'; '.join(ways)}); a finer granularity may do"
        )


def _named(problem: Problem, op: int) -> str:
    """The names of an op's allowed devices."""
    return ", ".join(name for name, may in zip(problem.cluster.device_names, problem.allowed[op], strict=True) if may)
