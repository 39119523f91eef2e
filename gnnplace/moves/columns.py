"""The columns of the features of moves (`features`): their names, and the number of each."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float32

from gnnplace.units.blocks import GRAINS

NAMES = (
    # the moved ops and their time on the critical chain (shares of the step time), in all and by kind
    "log10 ops", "share of ops",
    "chain", "chain on device", "chain on input", "chain on channel", "chain at once", "chain blocked",
    "chain received",
    # their time before and after
    "work before", "work after", "work more", "log work ratio",
    # loads of devices: the largest, the sum of squares, and those of the devices that they leave and join
    "largest load before", "largest load after", "squared loads more", "load of source", "load of target",
    "load of target after",
    # idle time of devices while they could run, in units of their time, and shares of it
    "idle of target by work", "idle of source", "idle of target",
    # transfers, their sum and the most on a channel
    "sent before", "sent after", "sent more", "most on a channel before", "most on a channel after",
    # shares of the bytes of edges to and from other ops that lie within a device
    "bytes beside on target", "bytes beside on source", "inputs on target", "outputs on target",
    # the longest path through them, and the change of the critical chain
    "path after", "path before", "path beyond step",
    "chain work more", "chain sent more", "chain queue more", "chain more", "chain local more", "start later",
    "chain on source", "chain on target", "chain of transfers",
    # what is free: time, memory
    "least slack", "mean slack", "span", "first start", "memory left", "overflow before", "overflow more", "no link",
    # devices: how many they leave and join, and of the machine
    "sources", "targets", "devices", "utilisation",
)  # fmt: skip
(
    LOG_OPS, SHARE, CHAIN, CHAIN_ON_DEVICE, CHAIN_ON_INPUT, CHAIN_ON_CHANNEL, CHAIN_AT_ONCE, CHAIN_BLOCKED,
    CHAIN_RECEIVED,
    WORK_BEFORE, WORK_AFTER, WORK_MORE, WORK_RATIO,
    LOAD_BEFORE, LOAD_AFTER, SQUARES_MORE, LOAD_SOURCE, LOAD_TARGET, LOAD_TARGET_AFTER,
    IDLE_BY_WORK, IDLE_SOURCE, IDLE_TARGET,
    SENT_BEFORE, SENT_AFTER, SENT_MORE, CHANNEL_BEFORE, CHANNEL_AFTER,
    BESIDE_TARGET, BESIDE_SOURCE, INPUTS_TARGET, OUTPUTS_TARGET,
    PATH_AFTER, PATH_BEFORE, PATH_BEYOND, CHAIN_WORK, CHAIN_SENT, CHAIN_QUEUE, CHAIN_MORE, CHAIN_LOCAL,
    START_LATER, CHAIN_SOURCE, CHAIN_TARGET, CHAIN_TRANSFERS,
    SLACK_LEAST, SLACK_MEAN, SPAN, FIRST_START, MEMORY_LEFT, OVERFLOW_BEFORE, OVERFLOW_MORE, UNLINKED,
    SOURCES, TARGETS, DEVICES, UTILISATION,
) = range(len(NAMES))  # fmt: skip
DRAWN = (*(f"grain {name}" for name in (*GRAINS, "walk")), "blocks", "guided", "same grain")  # how a move was drawn


def hopeless(rows: Float32[np.ndarray, "moves features"]) -> Bool[np.ndarray, " moves"]:
    """Moves that can't improve the step: a device or channel would be busy for as long as it takes, and nothing
    overflows.
    """
    busy = np.maximum(rows[:, LOAD_AFTER], rows[:, CHANNEL_AFTER])
    return (busy >= 1) & (rows[:, OVERFLOW_BEFORE] == 0)
