"""Constraints on placements as problems of their own, which every planner, search, policy and bound respects without
knowing of them.

What has to stay whole becomes a colocation group, and devices that may not be used leave the cluster. Stages need more,
that each device has one run of modules: `Stages` says where cuts may be, and `baselines/staged` searches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.cluster import Cluster
from gnnplace.formats import strict_json
from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.units.granularity import GRANULARITIES, Granularity
from gnnplace.units.modules import Modules, modules
from gnnplace.units.units import colocation_closure
from gnnplace.units.variables import merged


@dataclass(frozen=True)
class Constraint:
    """What a placement has to keep to; by default nothing.

    `keep_whole` are names of modules, or of what modules are in (`h.0`), perhaps with wildcards that stand for a part
    of a name (`h.*`): each of these stays on one device, and names with a `+` between (`wte+lm_head`) on the same.
    `devices` are all that may be used, where there are any; `accelerators_only` leaves the CPUs out. There are at most
    `max_cuts` boundaries between stages. Raises ValueError.
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
        """The same at each finer granularity, the coarsest first."""
        for name in reversed(GRANULARITIES[: GRANULARITIES.index(self.granularity)]):
            yield replace(self, granularity=name, max_cuts=None)

    def __str__(self) -> str:
        """What is asked for, in words; nothing where nothing is."""
        words = (
            []
            if self.granularity == "op"
            else [f"whole {self.granularity}s" if self.granularity == "module" else "stages"]
        )
        words += [] if self.max_cuts is None else [f"at most {self.max_cuts} cuts"]
        words += [f"{', '.join(self.keep_whole)} whole"] if self.keep_whole else []
        words += [f"on {', '.join(self.devices)}"] if self.devices else []
        return "; ".join([*words, *(["accelerators only"] if self.accelerators_only else [])])


@dataclass(frozen=True, eq=False)
class Stages:
    """A row of items, each a run of modules that no cut may divide: `item[i]` is the item of op i. A stage is a run of
    items on a device.

    At most `most` devices may have one. `binding`: a placement has to consist of stages; else of whole modules, and
    stages are one way.
    """

    item: Int64[np.ndarray, " ops"]
    num_items: int
    most: int
    binding: bool


@dataclass(frozen=True, eq=False)
class Constrained:
    """A problem under a constraint: `problem` uses some devices of the `whole` one. `of_whole` and `within` translate
    placements between the two.

    `device[d]` is the index, in the whole problem, of device d of `problem`.
    """

    whole: Problem
    problem: Problem
    device: Int32[np.ndarray, " devices"]
    stages: Stages | None = None

    def of_whole(self, placement: Placement) -> Placement:
        """A placement of `problem` as one of the whole problem."""
        return replace(placement, device=self.device[placement.device])

    def within(self, placement: Placement) -> Placement:
        """A placement of the whole problem as one of `problem`.

        Raises ValueError where it breaks the constraint, stages aside.
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

    Raises ValueError (one line) for names that there are not, and where no device that may be used is allowed for all
    that has to stay together.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> whole = gp.constrained(problem, gp.Constraint("module", devices=("gpu:0", "gpu:1")))
    >>> whole.problem.cluster.device_names, gp.lower_bound(whole.problem) >= gp.lower_bound(problem)
    (('gpu:0', 'gpu:1'), True)
    """
    if constraint == Constraint():
        return Constrained(problem, problem, np.arange(problem.num_devices, dtype=np.int32))
    device = _devices(problem.cluster, constraint)
    graph, stages = _tied(problem.graph, constraint, len(device))
    posed = _on(problem, graph, device)
    _require_devices(posed, constraint)
    return Constrained(problem, posed, device, stages)


def on_devices(problem: Problem, device: Int32[np.ndarray, " devices"]) -> Constrained:
    """The problem on some of its devices, with the same graph; there may be ops that are allowed on none of them."""
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


def _part(cluster: Cluster, device: Int32[np.ndarray, " devices"]) -> Cluster:
    """The cluster of some of its devices and of the links between them."""
    if len(device) == cluster.num_devices:
        return cluster
    devices = tuple(cluster.devices[index] for index in device.tolist())
    names = {each.name for each in devices}
    return Cluster(cluster.name, devices, tuple(link for link in cluster.links if {link.src, link.dst} <= names))


def _tied(graph: ComputationGraph, constraint: Constraint, devices: int) -> tuple[ComputationGraph, Stages | None]:
    """The graph with what has to stay whole as colocation groups; and its stages, where whole modules are asked for."""
    label, module_map, stages = colocation_closure(graph), modules(graph), None
    together = list(_kept_whole(module_map, constraint.keep_whole))
    if constraint.granularity != "op":
        label = merged(label, module_map.module.astype(np.int64))
    for members in together:
        label = merged(label, np.where(members[module_map.module], 0, NONE))
    if constraint.granularity != "op":
        item, binding = _items(module_map, label), constraint.granularity == "stage"
        label = merged(label, item) if binding else label
        most = devices if constraint.max_cuts is None else min(devices, constraint.max_cuts + 1)
        stages = Stages(item, int(item.max()) + 1, most, binding)
    return replace(graph, colocation=_groups(graph, module_map, label)), stages


def _kept_whole(module_map: Modules, names: Sequence[str]) -> Iterator[Bool[np.ndarray, " modules"]]:
    """The modules that stay together, for each name, or for each that a name with wildcards means; of a sum of names
    for all.

    Raises ValueError for a name of none.
    """
    parts = [re.split(r"[/.]", name) for name in module_map.names]
    for name in names:
        both = [_meant(module_map, parts, each) for each in name.split("+")]
        yield from both[0] if len(both) == 1 else [np.logical_or.reduce([members for each in both for members in each])]


def _meant(module_map: Modules, parts: list[list[str]], name: str) -> list[Bool[np.ndarray, " modules"]]:
    """The modules that a name means, or each name that one with wildcards stands for.

    Raises ValueError where there are none.
    """
    wanted = re.split(r"[/.]", name)
    held: dict[tuple[str, ...], Bool[np.ndarray, " modules"]] = {}
    for index, part in enumerate(parts):
        if len(part) >= len(wanted) and all(map(fnmatchcase, part, wanted)):
            held.setdefault(tuple(part[: len(wanted)]), np.zeros(len(parts), dtype=bool))[index] = True
    if not held:
        raise ValueError(f"keep_whole: {strict_json.unknown('module', name, module_map.names)}")
    return list(held.values())


def _items(module_map: Modules, label: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The item of each op. Items are modules in order; modules that have to stay together, and all modules between
    them, are one item.
    """
    first, last = np.full(len(label), module_map.num_modules), np.full(len(label), NONE)
    np.minimum.at(first, label, module_map.module)
    np.maximum.at(last, label, module_map.module)
    inside = np.zeros(module_map.num_modules + 1, dtype=np.int64)  # how many spans cross the cut before each module
    np.add.at(inside, first[last > first] + 1, 1)
    np.subtract.at(inside, last[last > first] + 1, 1)
    starts = np.cumsum(inside)[:-1] == 0
    return (np.cumsum(starts) - 1)[module_map.module]


def _groups(graph: ComputationGraph, module_map: Modules, label: Int64[np.ndarray, " ops"]) -> Categorical:
    """Colocation groups of equal labels, named by their first op's group or module; ops that are alone have none."""
    labels, first, number, count = np.unique(label, return_index=True, return_inverse=True, return_counts=True)
    index = np.where(count > 1, np.cumsum(count > 1) - 1, NONE)[number].astype(np.int32)
    several = first[count > 1].tolist()
    return Categorical(tuple(module_map.names[module_map.module[op]] for op in several), index)


def _require_devices(problem: Problem, constraint: Constraint) -> None:
    """Raises ValueError where no device is allowed for an op, or for all ops of a group."""
    graph, names = problem.graph, ", ".join(problem.cluster.device_names)
    if not (possible := problem.allowed.any(axis=1)).all():
        raise ValueError(f"devices: op {graph.op_names[int(np.argmin(possible))]!r} is allowed on none of {names}")
    group = colocation_closure(graph)
    legal = np.ones(problem.allowed.shape, dtype=bool)
    np.logical_and.at(legal, group, problem.allowed)
    torn = np.flatnonzero(~legal.any(axis=1))
    if len(torn):
        wanted = [
            f"{graph.op_names[op]!r} by {_named(problem, op)}"
            for op in np.flatnonzero(group == group[torn[0]]).tolist()
        ]
        ways = list({words.rpartition(" by ")[2]: words for words in wanted}.values())
        what = f"granularity: {graph.colocation[int(torn[0])]!r} has to be whole"
        raise ValueError(
            f"{what}, but its ops are allowed by different devices ({'; '.join(ways)}); a finer granularity may do"
        )


def _named(problem: Problem, op: int) -> str:
    return ", ".join(name for name, may in zip(problem.cluster.device_names, problem.allowed[op], strict=True) if may)
