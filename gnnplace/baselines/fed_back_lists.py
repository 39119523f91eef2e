"""List schedules that feed back a placement: random variants of the list schedule that proposed it.

A list scheduler doesn't know what follows an op. A simulated step of an earlier placement does. The new list takes two
things from its timeline:

- the order: ops are sorted by their ranks in that step, i.e. the longest path from the start of each op to the end of
  the step, with the transfers and the order within devices as they were. In some draws the upward rank stays.
- a penalty on each device for an op's unit: the longest path behind the unit, and the channel time of its messages, if
  the unit stood on that device and its consumers stayed where they are.

Draws differ in the weights of both penalties, in noise, and often in the units, the estimate of finish times or the
devices.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int32

from gnnplace.baselines.sampled_lists import Settings, drawn, list_schedule
from gnnplace.cluster import NO_LINK
from gnnplace.compiled import kernel
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.schedules.ranks import NOTHING, delays
from gnnplace.schedules.tails import tail_ns
from gnnplace.units.units import Units, units

WEIGHTS = (0.0, 0.5, 1.0)  # of a penalty
UPWARD = 0.4  # the share of lists by upward ranks
QUIET = 0.5  # the share of lists without noise on ranks, beside those that draw none
# the share of lists that draw a setting anew; the others take it from the precedent
CHANGED = {"units_name": 0.5, "view": 0.5, "share": 0.2}


class Precedent(NamedTuple):
    """What is fed back: the settings of a list schedule, a placement with its order, and the rank of each op."""

    settings: Settings
    device: Int32[np.ndarray, " ops"]
    rank_ns: Float[np.ndarray, " ops"]
    schedule: Schedule


class Feedback(NamedTuple):
    """What a list schedule takes from its precedent."""

    settings: Settings
    ranked: bool  # True: ops are sorted by their ranks in the step of the precedent
    path: float  # the weight of the longest path behind a unit
    messages: float  # the weight of the channel time of a unit's messages


class Behind(NamedTuple):
    """What follows a unit on each device while all other units stay: times in ns."""

    path_ns: Float[np.ndarray, "units devices"]
    messages_ns: Float[np.ndarray, "units devices"]


def precedent(problem: Problem, settings: Settings, placement: Placement, result: StepResult) -> Precedent | None:
    """The precedent of a placement with its result; None if the result is infeasible or has no timeline."""
    if result.infeasible is not None or result.timeline is None:
        return None
    timeline = result.timeline
    rank_ns = timeline.end_ns - timeline.start_ns + tail_ns(problem, placement.device, timeline)
    return Precedent(settings, placement.device, rank_ns, placement.schedule)


def drawn_feedback(generator: np.random.Generator, before: Settings) -> Feedback:
    """Random feedback; many settings stay as they were in the list `before`."""
    other = drawn(generator)
    changed = {name: getattr(other, name) for name, share in CHANGED.items() if generator.random() < share}
    disturbed = 0.0 if generator.random() < QUIET else other.disturbed
    settings = before._replace(disturbed=disturbed, by_unit=other.by_unit, staged=0.0, downward=False, **changed)
    ranked, (path, messages) = generator.random() >= UPWARD, generator.choice(WEIGHTS, size=2).tolist()
    return Feedback(settings, ranked, path, messages)


def fed_back_list(problem: Problem, feedback: Feedback, before: Precedent, generator: np.random.Generator) -> Placement:
    """The placement of one list schedule with feedback from a precedent, in the order of the precedent.

    Raises ValueError if a unit is allowed on no device.
    """
    grouping = units(problem.graph, feedback.settings.units_name)
    follows = behind(problem, grouping, before)
    path_ns = follows.path_ns - follows.path_ns.min(axis=1, keepdims=True)
    added_ns = (feedback.path * path_ns + feedback.messages * follows.messages_ns).astype(np.int64)
    rank_ns = before.rank_ns if feedback.ranked else None
    return list_schedule(
        problem, feedback.settings, generator, before.schedule, rank_ns=rank_ns, added_ns=added_ns[grouping.unit]
    )


def behind(problem: Problem, grouping: Units, before: Precedent) -> Behind:
    """What follows each unit on each device if all consumers in other units stay on their devices of the precedent.

    `path_ns` is the longest path from the end of an op of the unit over a consumer to the end of the step; transfers to
    consumers do not wait. It is the step time where a link to a consumer is missing. `messages_ns` is the total channel
    time of outputs; an output is sent once to each device.
    """
    step_ns = float(before.rank_ns.max(initial=0))
    return Behind(*_behind(delays(problem), before.device, grouping.unit, grouping.num_units, before.rank_ns, step_ns))


@kernel
@no_type_check
def _behind(delays, device, unit, num_units, rank_ns, step_ns):
    """`Behind.path_ns` and `Behind.messages_ns`."""
    devices = delays.time_ns.shape[1]
    path_ns, messages_ns = np.zeros((num_units, devices)), np.zeros((num_units, devices))
    sent = np.full(devices, NOTHING)  # the last output counted as sent to each device
    for op in range(len(device)):
        for edge in range(delays.out_ptr[op], delays.out_ptr[op + 1]):
            reader, output = delays.edges[edge].dst, delays.edges[edge].output
            if unit[reader] == unit[op]:
                continue
            there = device[reader]
            counts = output != NOTHING and sent[there] != output
            if counts:
                sent[there] = output
            for here in range(devices):
                lag_ns = 0.0
                if here != there:
                    link = delays.link_index[here, there]
                    if link == NO_LINK:
                        lag_ns = step_ns - rank_ns[reader]
                    elif output == NOTHING:
                        lag_ns = max(1, delays.link_latency_ns[link])
                    else:
                        transfer_ns = delays.transfer_ns[output, delays.link_rate[link]]
                        lag_ns = delays.link_latency_ns[link] + transfer_ns * delays.link_hops[link]
                        if counts:
                            messages_ns[unit[op], here] += transfer_ns
                path_ns[unit[op], here] = max(path_ns[unit[op], here], lag_ns + rank_ns[reader])
    return path_ns, messages_ns
