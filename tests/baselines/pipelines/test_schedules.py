"""Published pipeline schedules: their bubbles and their activations in flight, as the exact simulator finds them."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from support.equal_stages import UNIT_NS, equal_stages, held
from support.slow import slow, thorough

from gnnplace.baselines.pipelines.actions import Rule, alive
from gnnplace.baselines.pipelines.gpipe import gpipe
from gnnplace.baselines.pipelines.graphpipe import branched_stages, graphpipe, in_branches
from gnnplace.baselines.pipelines.interleaved import interleaved_1f1b
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.pipelined import pipelined
from gnnplace.baselines.pipelines.v_half import v_half
from gnnplace.baselines.pipelines.zb_h1 import zb_h1
from gnnplace.baselines.pipelines.zb_v import zb_v
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate

SHORT_NS = 500  # more than all reads, sums, updates and transfers of a step take


def step(rule: Rule, devices: int, chunks: int, copies: int) -> StepResult:
    problem = equal_stages(devices, devices * chunks, copies)
    placement = pipelined(problem, simulate, rule=rule)
    assert len(np.unique(placement.device)) == devices
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.infeasible is None
    return result


def units(time_ns: int) -> int:
    """The time in passes over a stage, of which there are no halves."""
    whole = round(time_ns / UNIT_NS)
    assert 0 <= time_ns - whole * UNIT_NS < SHORT_NS
    return whole


def bubble(result: StepResult, chunks: int, copies: int) -> int:
    assert result.step_time_ns is not None
    return units(result.step_time_ns) - 3 * chunks * copies


SIZES = [(1, 2), (2, 2), (2, 5), (3, 2), (3, 7), (4, 4), (4, 9)]  # devices, micro-batches


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_gpipe_and_1f1b_idle_alike_and_1f1b_holds_less(p: int, m: int):
    first, second = step(gpipe, p, 1, m), step(one_f_one_b, p, 1, m)
    assert bubble(first, 1, m) == bubble(second, 1, m) == 3 * (p - 1)
    assert held(first) == [m] * p
    assert held(second) == [min(p - d, m) for d in range(p)]


@pytest.mark.parametrize(("p", "m", "chunks"), [(2, 2, 2), (2, 4, 3), (3, 6, 2), (4, 8, 2), (4, 4, 2)])
def test_interleaved_stages_idle_less(p: int, m: int, chunks: int):
    result = step(lambda devices, copies: interleaved_1f1b(devices, copies, chunks), p, chunks, m)
    assert bubble(result, chunks, m) == 3 * (p - 1)  # of the passes over a chunk, a part of those over a device
    assert held(result)[0] == (p * chunks if m == p else (chunks + 1) * p - 1)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (2, 5), (3, 4), (4, 4), (4, 9)])
def test_zb_h1_idles_a_third_of_1f1b(p: int, m: int):
    result = step(zb_h1, p, 1, m)
    assert bubble(result, 1, m) == p - 1
    assert held(result) == [p] * p


@pytest.mark.parametrize(("p", "m"), [(1, 2), (2, 3), (2, 6), (3, 5), (4, 7), (4, 12)])
def test_no_device_of_zb_v_idles_between_its_first_and_its_last_pass(p: int, m: int):
    result = step(zb_v, p, 2, m)
    assert bubble(result, 2, m) == p - 1  # the last device begins as late
    assert held(result) == [2 * p] * p  # of halves of a device


# The program of V-Half's authors (sail-sg/zero-bubble-pipeline-parallelism, zbv_greedy.py), with F = B = W, idles for so many passes
# over a chunk: from p = 3 on, 3p - 4 where p is odd and 3p - 7 where it is even. The paper says about (p / 2)(F + B + W), which are 3p.
IDLE = [(1, 2, 0), (2, 4, 1), (3, 4, 5), (3, 6, 5), (4, 8, 5), (5, 6, 11), (5, 10, 11), (6, 12, 11), (8, 16, 17)]
IDLE_MORE = [slow(12, 24, 29), thorough(16, 32, 41)]


@pytest.mark.parametrize(("p", "m", "authors"), IDLE + IDLE_MORE)
def test_v_half_holds_half_of_what_1f1b_does_and_idles_as_its_authors_program(p: int, m: int, authors: int):
    result = step(v_half, p, 2, m)
    assert bubble(result, 2, m) == authors
    assert max(held(result)) == 2 * ((p + 2) // 2)


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_v_half_repeats_its_building_block(p: int):
    """The offsets of the paper from device to device: 2 down the V for F, 1 up; 2 down for B, 1 up; every 6 units."""
    m, late = 4 * p, 0 if p % 2 else 3  # the block waits before its first B where passes would meet
    down = list(accumulate([2] * (p - 1), initial=0))
    up = list(accumulate([1] * (p - 1), initial=down[-1] + 1))[::-1]
    back = list(accumulate([2] * (p - 1), initial=up[0] + 1 + late))
    home = list(accumulate([1] * (p - 1), initial=back[-1] + 2))[::-1]
    begin, end = home[0], 6 * (m - 1)  # the steady state: from the first B of the first stage to its last F
    for device, row in enumerate(v_half(p, m)):
        last = 2 * p - 1 - device
        unit = {("F", device): down, ("F", last): up, ("B", last): back, ("B", device): home}
        block = {key: offsets[device] for key, offsets in unit.items()}
        assert len({offset % 6 for offset in block.values()}) == 4
        steady = [block[kind, stage] + 6 * copy for kind, stage, copy in row if kind != "W"]
        inside = [at for at in steady if begin < at < end]
        assert inside == sorted(inside) and len(inside) > 4 * p


@pytest.mark.parametrize(("branches", "length", "m"), [(2, 1, 4), (2, 2, 6), (3, 1, 5)])
def test_branches_run_side_by_side_and_hold_less_than_in_a_row(branches: int, length: int, m: int):
    p = branches * length + 1
    problem = equal_stages(p, p, m, branches)
    *_, stage = branched_stages(problem)
    placements = in_branches(problem, stage, problem.cluster.accelerators), graphpipe(problem, simulate)
    for result in simulate(problem, placements):
        assert bubble(result, 1, m) == 3 * length  # the longest path, not 3 (p - 1)
    assert held(simulate(problem, placements)[0]) == [min(length + 1 - d % length, m) for d in range(p - 1)] + [1]


def test_activations_of_each_stage_are_counted():
    assert alive(one_f_one_b(4, 8)) == [4, 3, 2, 1] and alive(gpipe(2, 5)) == [5, 5]
