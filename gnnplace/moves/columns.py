"""The columns of the features of moves (`features`): a constant with the number of each, and its name in `NAMES`."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float32

from gnnplace.units.blocks import GRAINS

_names: list[str] = []


def _column(name: str) -> int:
    """The number of the next column."""
    _names.append(name)
    return len(_names) - 1


# the number of moved ops and its share of all ops; their time on the critical chain (shares of the step time), in
# total and by kind
LOG_OPS = _column("log10 ops")
SHARE = _column("share of ops")
CHAIN = _column("chain")
CHAIN_ON_DEVICE = _column("chain on device")
CHAIN_ON_INPUT = _column("chain on input")
CHAIN_ON_CHANNEL = _column("chain on channel")
CHAIN_AT_ONCE = _column("chain at once")
CHAIN_BLOCKED = _column("chain blocked")
CHAIN_RECEIVED = _column("chain received")

# the time of moved ops before and after the move
WORK_BEFORE = _column("work before")
WORK_AFTER = _column("work after")
WORK_MORE = _column("work more")
WORK_RATIO = _column("log work ratio")

# loads of devices: the largest, the sum of squares, and those of the devices that ops leave and join
LOAD_BEFORE = _column("largest load before")
LOAD_AFTER = _column("largest load after")
SQUARES_MORE = _column("squared loads more")
LOAD_SOURCE = _column("load of source")
LOAD_TARGET = _column("load of target")
LOAD_TARGET_AFTER = _column("load of target after")

# the idle time of devices in the window in which the moved ops could run: over their time, and as a share of the window
IDLE_BY_WORK = _column("idle of target by work")
IDLE_SOURCE = _column("idle of source")
IDLE_TARGET = _column("idle of target")

# transfers: their sum, and the most on a channel
SENT_BEFORE = _column("sent before")
SENT_AFTER = _column("sent after")
SENT_MORE = _column("sent more")
CHANNEL_BEFORE = _column("most on a channel before")
CHANNEL_AFTER = _column("most on a channel after")

# edges to and from other ops: the shares of their bytes that stay within a device
BESIDE_TARGET = _column("bytes beside on target")
BESIDE_SOURCE = _column("bytes beside on source")
INPUTS_TARGET = _column("inputs on target")
OUTPUTS_TARGET = _column("outputs on target")

# the longest path through the moved ops, and the change of the critical chain
PATH_AFTER = _column("path after")
PATH_BEFORE = _column("path before")
PATH_BEYOND = _column("path beyond step")
CHAIN_WORK = _column("chain work more")
CHAIN_SENT = _column("chain sent more")
CHAIN_QUEUE = _column("chain queue more")
CHAIN_MORE = _column("chain more")
CHAIN_LOCAL = _column("chain local more")
START_LATER = _column("start later")
CHAIN_SOURCE = _column("chain on source")
CHAIN_TARGET = _column("chain on target")
CHAIN_TRANSFERS = _column("chain of transfers")

# what is free: time, memory
SLACK_LEAST = _column("least slack")
SLACK_MEAN = _column("mean slack")
SPAN = _column("span")
FIRST_START = _column("first start")
MEMORY_LEFT = _column("memory left")
OVERFLOW_BEFORE = _column("overflow before")
OVERFLOW_MORE = _column("overflow more")
UNLINKED = _column("no link")

# the numbers of devices that ops leave and join, and of the machine
SOURCES = _column("sources")
TARGETS = _column("targets")
DEVICES = _column("devices")
UTILISATION = _column("utilisation")

NAMES = tuple(_names)
DRAWN = (*(f"grain {name}" for name in (*GRAINS, "walk")), "blocks", "guided", "same grain")  # how a move was drawn


def hopeless(rows: Float32[np.ndarray, "moves features"]) -> Bool[np.ndarray, " moves"]:
    """Moves that can't improve the step: a device or channel would be busy for as long as the step takes now.

    No move counts as hopeless while a memory overflows.
    """
    busy = np.maximum(rows[:, LOAD_AFTER], rows[:, CHANNEL_AFTER])
    return (busy >= 1) & (rows[:, OVERFLOW_BEFORE] == 0)
