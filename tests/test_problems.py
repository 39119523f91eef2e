"""What a problem may take: everything below 2^53 ns and bytes is counted exactly, the rest is refused in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from support.graphs import equal_gpus, op

from gnnplace.cluster import Cluster, Device
from gnnplace.costs import roofline
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import MAX_STEP_NS, Problem, duration_ns

ONE = Cluster("one", (Device("gpu:0", "gpu", 1, 1, 3),), ())


def alone(ops: list[Op], edges: Sequence[tuple[int, int, int]] = (), devices: Cluster = ONE) -> Problem:
    return roofline.problem(ComputationGraph.from_ops("big", ops, edges), devices)


def test_a_quotient_is_exact_up_to_the_limit_and_the_limit_beyond():
    amounts = np.array([2**50, 2**53 // 10**9, 2**53 // 10**9 + 1, 0, 2**60])
    assert duration_ns(amounts, 1).tolist() == [MAX_STEP_NS, 2**53 // 10**9 * 10**9, MAX_STEP_NS, 0, MAX_STEP_NS]
    assert duration_ns(np.array([2**60]), 2**62).tolist() == [250_000_000]


@pytest.mark.parametrize("ops, what", [
    ([Op("a", "k", (Output(2**40),))], r"9\.01e\+15 ns; less than 2\^53"),
    ([Op("a", "k", flops=2**60)], r"9\.01e\+15 ns; less than 2\^53"),
    ([op(f"a{i}", 2**50) for i in range(8)], r"9\.01e\+15 ns; less than 2\^53"),
    ([op(f"a{i}", 1, 2**50) for i in range(8)], r"9\.01e\+15 bytes held; less than 2\^53"),
    ([op(f"a{i}", 1, persistent_bytes=2**50) for i in range(8)], r"9\.01e\+15 bytes held; less than 2\^53"),
    ([op(f"a{i}", 1, bytes_accessed=2**50) for i in range(2**12)], r"4\.61e\+18 bytes moved; less than 2\^62"),
    ([op(f"a{i}", 1, flops=2**60) for i in range(9)], r"1\.04e\+19 flops; less than 2\^62"),
])  # fmt: skip
def test_more_than_can_be_counted_is_refused_in_one_line(ops: list[Op], what: str):
    with pytest.raises(ValueError, match=f"^big on one: a step could have {what} are due$"):
        alone(ops)


def test_what_is_just_below_is_a_problem():
    assert alone([op(f"a{i}", 2**50) for i in range(7)] + [op("b", 2**50 - 1)]).longest_ns == 2**53 - 1
    assert alone([op("a", 2**50), op("b", 1, persistent_bytes=2**50 - 1)]).time_ns.tolist() == [[2**50], [1]]


def test_times_that_an_op_gives_count_and_not_what_a_model_would_say():
    assert alone([op("a", 5, flops=2**60, bytes_accessed=2**50)]).time_ns.tolist() == [[5]]


def test_transfers_count_one_by_one_not_all_as_the_largest():
    """A few large outputs do not make a graph of many small ones too long."""
    ops = [op("large", 1, 2**50), *(op(f"a{i}", 1, 1) for i in range(1000))]
    posed = alone(ops, [(0, 0, 1), *((i, 0, i + 1) for i in range(1, 1000))], equal_gpus(2))
    assert posed.longest_ns == 1001 + 2 * (2**50 + 999) + 1000


def test_a_launch_beside_a_quotient_near_64_bits_does_not_wrap():
    slow = Cluster("slow", (Device("gpu:0", "gpu", 1, 125_000_000, 1, launch_ns=2**50),), ())
    with pytest.raises(ValueError, match=re.escape("less than 2^53")):
        alone([Op("a", "k", flops=2**60)], [], slow)
