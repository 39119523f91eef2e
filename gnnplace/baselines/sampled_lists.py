"""Random list schedules: starts for searches that must not depend on the placement of any heuristic.

Each is a random variant of HEFT (Topcuoglu, Hariri and Wu, 2002). It draws the units, the usable devices, the estimate
of finish times, the noise on ranks, and how much an op prefers the device of its stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.legal import on_accelerators
from gnnplace.baselines.scheduling.instance import Guide, instance
from gnnplace.baselines.scheduling.list_schedule import VIEWS, schedule_units
from gnnplace.baselines.scheduling.ranks import downward_rank_ns, upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.units.units import Units, UnitsName, allowed, expand, units


class Settings(NamedTuple):
    """The settings of one list schedule."""

    units_name: UnitsName
    share: float  # of the accelerators, the fastest first; above 1: CPUs too
    view: int  # of `list_schedule.VIEWS`
    downward: bool  # True: ops are sorted by their earliest start, not by the longest path behind them
    disturbed: float  # the noise on ranks, in units of the longest path
    by_unit: bool  # True: coarse units have a common noise
    staged: float  # the penalty of an op on another device than that of its stage, in units of the mean load
    kept: bool  # True: memories also hold outputs that live for most of the step


def drawn(generator: np.random.Generator) -> Settings:
    """Random settings."""

    def one(options: Mapping[float, float]) -> float:
        return float(generator.choice(list(options), p=list(options.values())))

    return Settings(
        units_name=("ops", "weights", "coarse")[generator.integers(3)],
        share=one({2.0: 0.1, 1.0: 0.55, 0.25: 0.1, 0.5: 0.15, 0.75: 0.1}),
        view=int(generator.choice(VIEWS, p=(0.3, 0.45, 0.25))),
        downward=generator.random() < 0.1,
        disturbed=one({0.0: 0.34, 0.02: 0.165, 0.05: 0.165, 0.1: 0.165, 0.2: 0.165}),
        by_unit=generator.random() < 0.5,
        staged=one({0.0: 0.5, 0.01: 0.1, 0.02: 0.2, 0.05: 0.1, 0.1: 0.1}),
        kept=generator.random() < 0.3,
    )


class _Constants(NamedTuple):
    """The tables that all list schedules of a problem share."""

    upward_ns: Float[np.ndarray, " ops"]
    downward_ns: Float[np.ndarray, " ops"]
    coarse: Units
    accelerators: Int64[np.ndarray, " accelerators"]  # the fastest first
    position: Float[np.ndarray, " ops"]  # the share of the work before the middle of an op, in order of earliest starts
    mean_load_ns: float


_constants: WeakKeyDictionary[Problem, _Constants] = WeakKeyDictionary()


def _of(problem: Problem) -> _Constants:
    if problem not in _constants:
        least_ns, downward_ns = problem.time_ns.min(axis=1).astype(np.float64), downward_rank_ns(problem)
        accelerators, order = problem.cluster.accelerators, np.argsort(downward_ns, kind="stable")
        position = np.zeros(problem.num_ops)
        position[order] = (np.cumsum(least_ns[order]) - least_ns[order] / 2) / max(1.0, least_ns.sum())
        coarse = units(problem.graph, "coarse")
        fastest_first = accelerators[np.argsort(problem.time_ns[:, accelerators].sum(axis=0), kind="stable")]
        _constants[problem] = _Constants(
            upward_rank_ns(problem), downward_ns, coarse, fastest_first, position,
            float(least_ns.sum()) / max(1, len(accelerators)),
        )  # fmt: skip
    return _constants[problem]


def list_schedule(
    problem: Problem,
    settings: Settings,
    generator: np.random.Generator,
    schedule: Schedule = "critical-path",
    *,
    rank_ns: Float[np.ndarray, " ops"] | None = None,
    added_ns: Int64[np.ndarray, "ops devices"] | None = None,
) -> Placement:
    """The placement of one list schedule.

    `rank_ns` replaces the ranks of the settings; their noise stays. `added_ns` is a further penalty on each op's finish
    time by device. Raises ValueError if a unit is allowed on no device.
    """
    constants = _of(problem)
    grouping = units(problem.graph, settings.units_name)
    used = constants.accelerators[: max(1, round(min(1.0, settings.share) * len(constants.accelerators)))]
    rank_ns = _rank_ns(constants, settings) if rank_ns is None else rank_ns
    penalties = [each for each in (added_ns, _staged_ns(problem, constants, settings, used)) if each is not None]
    guide = Guide(
        sequence(problem.graph, _priority(constants, settings, rank_ns, generator)),
        sum(penalties[1:], penalties[0]) if penalties else None,
    )
    given = instance(problem, grouping, _devices(problem, grouping, settings, used), guide, settings.kept)
    return Placement(expand(grouping, schedule_units(given, settings.view)[0]), schedule)


def list_schedules(
    problem: Problem, generator: np.random.Generator, schedule: Schedule = "critical-path"
) -> Callable[[], Placement]:
    """A source of random list schedules of a problem."""
    return lambda: list_schedule(problem, drawn(generator), generator, schedule)


def _devices(
    problem: Problem, grouping: Units, settings: Settings, used: Int64[np.ndarray, " used"]
) -> Bool[np.ndarray, "units devices"]:
    legal = allowed(problem, grouping)
    if settings.share > 1:
        return legal
    fast = on_accelerators(problem, legal)
    some = fast & np.isin(np.arange(problem.num_devices), used)
    return np.where(some.any(axis=1, keepdims=True), some, fast)


def _rank_ns(constants: _Constants, settings: Settings) -> Float[np.ndarray, " ops"]:
    if settings.downward:
        return float(constants.upward_ns.max(initial=0)) - constants.downward_ns
    return constants.upward_ns


def _priority(
    constants: _Constants, settings: Settings, rank_ns: Float[np.ndarray, " ops"], generator: np.random.Generator
) -> Float[np.ndarray, " ops"]:
    """The ranks with the noise of the settings."""
    if not settings.disturbed:
        return rank_ns
    if settings.by_unit:
        noise = generator.gumbel(size=constants.coarse.num_units)[constants.coarse.unit]
    else:
        noise = generator.gumbel(size=len(rank_ns))
    return rank_ns + settings.disturbed * float(constants.upward_ns.max(initial=0)) * noise


def _staged_ns(
    problem: Problem, constants: _Constants, settings: Settings, used: Int64[np.ndarray, " used"]
) -> Int64[np.ndarray, "ops devices"] | None:
    """The penalty of each op on each device other than that of its stage; None without one. Stages have equal work."""
    if not (settings.staged and len(used)):
        return None
    stage = used[np.minimum((constants.position * len(used)).astype(np.int64), len(used) - 1)]
    elsewhere = np.arange(problem.num_devices) != stage[:, None]
    return (settings.staged * constants.mean_load_ns * elsewhere).astype(np.int64)
