"""The names that users choose from, and the defaults: for the command line, the API and configurations.

It imports only Python's standard library, so `--help` is quick.
"""

from __future__ import annotations

from typing import Literal, get_args

Schedule = Literal["fifo", "critical-path", "depth", "memory", "given", "in-order"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
PRIORITIZED: tuple[Schedule, ...] = ("given", "in-order")  # with a planner's priorities
RULES: tuple[Schedule, ...] = tuple(schedule for schedule in SCHEDULES if schedule not in PRIORITIZED)

RuntimeName = Literal["accelerate", "onnxruntime", "openvino", "placed", "tensorflow", "torch-pipelining"]

HERE = "here"  # the cluster that is this machine

Granularity = Literal["op", "module", "stage"]
GRANULARITIES: tuple[Granularity, ...] = get_args(Granularity)  # the finest first

# where the copies of an op for several micro-batches stand
CopiesName = Literal["together", "free", "fetched", "anchored", "whole"]
FREELY: tuple[CopiesName, ...] = ("free", "fetched", "anchored")  # each copy may stand on a device of its own
AT_HOME: tuple[CopiesName, ...] = ("anchored", "whole")  # what runs once stands on one device, or its replica's

BEST = "best"  # the planner that runs all others and searches from the fastest placement
SearchName = Literal["learned", "plain"]
SEARCH: SearchName = "learned"

Format = Literal["gnnplace", "msr-fiddle", "pipedream"]
Mode = Literal["training", "inference"]

ProtocolName = Literal["paper", "steady"]  # of timing

SyntheticFamily = Literal["layered", "fork-join", "series-parallel", "repeated-block"]
FAMILIES: tuple[SyntheticFamily, ...] = get_args(SyntheticFamily)

STEPS = 30  # steps behind each median of a profile
