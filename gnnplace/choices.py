"""What users choose by name, and what holds where they say nothing: the command line, the API and configurations read
it here.

This module imports Python's own library alone, so that `--help` waits for nothing else.
"""

from __future__ import annotations

from typing import Literal, get_args

Schedule = Literal["fifo", "critical-path", "depth", "memory", "given"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
# need no priorities from a planner
RULES: tuple[Schedule, ...] = tuple(schedule for schedule in SCHEDULES if schedule != "given")

HERE = "here"  # the cluster that is this machine

Granularity = Literal["op", "module", "stage"]
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)  # the finest first

BEST = "best"  # the planner that asks all others and searches from the fastest
SearchName = Literal["learned", "plain"]
SEARCH: SearchName = "learned"

Format = Literal["gnnplace", "msr-fiddle", "pipedream"]
Mode = Literal["training", "inference"]

ProtocolName = Literal["paper", "steady"]  # of timing

SyntheticFamily = Literal["layered", "fork-join", "series-parallel", "repeated-block"]
FAMILIES: tuple[SyntheticFamily, ...] = get_args(SyntheticFamily)

STEPS = 30  # behind each median of a profile
