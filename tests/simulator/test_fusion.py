"""Fused steps: both simulators agree on thousands of random ones, samples with different fusions in one call, and what is refused."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op, step
from support.differences import differences
from support.plain_fusion import Fused as PlainFused
from support.random_fusions import fused_case
from support.slow import parts, slow

from gnnplace.costs import measured, roofline
from gnnplace.costs.measured import MeasuredCosts
from gnnplace.fused import fused, fused_or_refusal
from gnnplace.graph import Op, Output
from gnnplace.placement import Placement, check, scheduled
from gnnplace.simulator.simulator import simulate

CHAIN = [(0, 0, 1), (1, 0, 2)]


def light(name, time_ns, *outputs, **columns):
    return op(name, time_ns, *outputs, canonical_kind="elementwise", **columns)


def labels(*values):
    return np.array(values, dtype=np.int32)


def same(first, second):
    """Whether two results are the same, timelines included."""

    def columns(result):
        timeline = {} if result.timeline is None else vars(result.timeline)
        return {**vars(result), "timeline": None, **timeline}

    ours, theirs = columns(first), columns(second)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("seeds", [range(40), range(40, 80), *parts(range(80, 4000), 8)])
def test_random_fused_steps(seeds):
    seen = Counter()
    for seed in seeds:
        case = fused_case(seed)
        problem, placement = case.problem(), case.placement()
        (result,) = simulate(problem, [placement], timeline=True)
        assert not differences(case, result), f"seed {seed}"
        assert (check(problem, placement) is None) == (result.infeasible is None or result.infeasible.startswith("memory")), f"seed {seed}"
        seen[result.infeasible.split(":")[0].split()[0] if result.infeasible else "feasible"] += 1
        (apart,) = simulate(problem, [replace(case, fusion=None).placement()], timeline=True)
        seen["changes the step"] += result.step_time_ns != apart.step_time_ns
        seen["saves memory"] += bool(
            result.step_time_ns and apart.step_time_ns and (result.peak_memory_bytes < apart.peak_memory_bytes).any()
        )
        seen["transfers"] += result.transfers > 0
    least = {"feasible": 10, "changes the step": 10, "saves memory": 1, "transfers": 3}
    assert all(seen[what] * 40 >= number * len(seeds) for what, number in least.items()), seen
    assert len(seeds) < 400 or (seen["fusion"] >= 5 and seen["op"] >= 2 and seen["memory"] >= 5), seen


@pytest.mark.parametrize("seeds", [range(20), slow(range(20, 1200))])
def test_a_fused_problem_says_by_itself_what_it_is(seeds):
    """Its times are in its graph, where ops may stand; where single ops may; placements of it and of single ops are the same."""
    for seed in seeds:
        case = fused_case(seed)
        problem, placement = case.problem(), case.placement()
        found = fused_or_refusal(problem, placement.fusion)
        if isinstance(found, str) or PlainFused(case.graph, case.cluster, case.device, case.schedule, case.priority, case.fusion).refused:
            continue
        again, allowed = roofline.problem(found.problem.graph, problem.cluster), np.ones_like(found.problem.allowed)
        np.logical_and.at(allowed, found.op, problem.allowed)
        assert np.array_equal(allowed, found.problem.allowed)
        assert np.array_equal(again.time_ns[allowed], found.problem.time_ns[allowed]) or problem.contended_ns is not None
        expanded = found.expanded(found.contracted(placement))
        assert np.array_equal(expanded.device, placement.device) and check(problem, expanded) == check(problem, placement)
        (small,), (whole,) = simulate(found.problem, [found.contracted(placement)]), simulate(problem, [expanded])
        assert (small.step_time_ns, small.transfers) == (whole.step_time_ns, whole.transfers)


def test_samples_with_different_fusions_are_simulated_in_one_call(monkeypatch):
    monkeypatch.setattr("gnnplace.simulator.simulator.usable_cores", lambda: 3)
    ops = [light(f"op{i}", 5 + i, 40) for i in range(6)]
    problem = made(ops, [(i, 0, i + 1) for i in range(5)], with_launches(gpus(link(0, 1), link(1, 0)), 3))
    fusions = [None, labels(0, 0, 2, 3, 4, 5), labels(0, 1, 1, 1, 4, 4), labels(0, 0, 2, 3, 4, 4), labels(0, 0, 0, 3, 3, 3)]
    devices = [[0] * 6, [1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]]
    placements = [
        Placement(np.array(device, np.int32), schedule, None, fusion)
        for schedule in ("critical-path", "memory")
        for fusion in fusions
        for device in devices
    ]
    together = simulate(problem, placements, timeline=True)
    assert all(same(result, *simulate(problem, [placement], timeline=True)) for placement, result in zip(placements, together, strict=True))
    assert len({result.step_time_ns for result in together}) > 6
    assert Counter(result.infeasible is None for result in together)[False] == 4  # [1, 1, 1] and [3, 3, 3] on two devices


def test_labels_that_fuse_nothing_change_nothing():
    problem = made([light(f"op{i}", 5, 40) for i in range(3)], CHAIN, gpus(link(0, 1)))
    plain, alone = (step_of(problem, [0, 0, 1], fusion) for fusion in (None, labels(2, 0, 1)))
    assert same(plain, alone)


def step_of(problem, device, fusion, **options):
    (result,) = simulate(problem, [Placement(np.array(device, np.int32), "fifo", None, fusion)], timeline=True, **options)
    return result


def test_fused_ops_start_and_end_together_and_what_they_make_is_sent_under_its_own_number():
    problem = made([light("a", 5, 3, 4), light("b", 5, 8), op("c", 1)], [*CHAIN, (0, 1, 2)], gpus(link(0, 1)))
    result = step_of(problem, [0, 0, 1], labels(0, 0, 2))
    assert result.timeline.start_ns.tolist()[:2] == [0, 0] and len(set(result.timeline.end_ns.tolist()[:2])) == 1
    assert result.timeline.transfer_output.tolist() == [1, 2]  # output 0 stays
    assert result.transferred_bytes == 12


def test_a_step_may_be_cut_off_and_a_given_order_is_that_of_the_highest():
    ops = [light("a", 5, 3), light("b", 5, 3), light("c", 9), light("d", 4)]
    problem = made(ops, [(0, 0, 1)], gpus())
    fusion, device = labels(0, 0, 2, 3), np.zeros(4, np.int32)
    assert "more than 3 ns" in step_of(problem, [0] * 4, fusion, limit_ns=3).infeasible
    (result,) = simulate(problem, [Placement(device, "given", np.array([1, 9, 5, 7]), fusion)], timeline=True)
    assert np.argsort(result.timeline.start_ns, kind="stable").tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize(
    ("device", "fusion", "reason"),
    [
        ([0, 0, 1], [0, 1, 1], "fusion: 'b' and 'c' are fused, but stand on gpu:0 and gpu:1"),
        ([0, 0, 0], [0, 1, 0], "fusion: 'c' is fused with 'a', but no tensors join them"),
        ([0, 0, 0], [0, 0, 0], None),
    ],
)
def test_what_cannot_be_fused_so_is_a_result_with_its_reason(device, fusion, reason):
    problem = made([light(name, 5, 40) for name in "abc"], CHAIN, gpus(link(0, 1)))
    placement = Placement(np.array(device, np.int32), fusion=labels(*fusion))
    result = step_of(problem, device, labels(*fusion))
    assert check(problem, placement) == result.infeasible == reason
    if reason is None:
        assert fused(problem, placement.fusion).problem.num_ops == 1
    else:
        assert result.step_time_ns is None and result.peak_memory_bytes is None and result.busy_ns.sum() == 15
        assert result.transfers == 0 and result.timeline is None and result.feasible_ns is None


@pytest.mark.parametrize("column", [{"persistent_bytes": 1}, {"kind": "variable"}, {"kind": "input"}, {"kind": "control"}])
def test_state_inputs_and_control_are_not_fused(column):
    other = Op("b", "Op", (Output(4),), canonical_kind=column.pop("kind", "elementwise"), time_ns={"gpu": 5}, **column)
    problem = made([light("a", 5, 4), other], CHAIN[:1], gpus())
    assert step_of(problem, [0, 0], labels(1, 1)).infeasible == "fusion: 'b' can't be fused: it is state, an input or control"
    with pytest.raises(ValueError, match="'b' can't be fused"):
        fused(problem, labels(1, 1))


@pytest.mark.parametrize("fusion", [[0, 1, 3], [0, -1, 2]])
def test_labels_are_numbers_of_ops(fusion):
    with pytest.raises(ValueError, match=r"fusion: \d labels between"):
        Placement(np.zeros(3, np.int32), fusion=labels(*fusion))


def test_a_fusion_stays_under_another_schedule():
    placement = Placement(np.zeros(2, np.int32), "given", np.arange(2), labels(0, 0))
    assert scheduled(placement, "fifo").fusion is placement.fusion


def test_measured_times_lose_a_launch_and_the_traffic_that_the_roofline_knows():
    ops = [Op("a", "MatMul", (Output(100),), flops=1), Op("b", "Relu", (Output(100),), flops=1, canonical_kind="activation")]
    posed = made(ops, CHAIN[:1], with_launches(gpus(), 30))
    costs = MeasuredCosts("by-hand", posed.graph.sha256, ("a", "b"), {"gpu": np.array([1000, 100])})
    found = fused(measured.problem(posed.graph, posed.cluster, costs), labels(0, 0)).problem
    assert posed.time_ns[:, 0].tolist() == [30 + 100, 30 + 200]  # 1 byte a nanosecond
    # a: 30 + 870 beyond + 100 of traffic, which is saved; b: 30 + 70, less than its traffic of 200, of which 100 stay: 70 at most
    assert found.time_ns[0].tolist() == [30 + 870 + 70] * 3


def with_launches(cluster, launch_ns):
    devices = (replace(device, launch_ns=launch_ns, memory_bytes_per_s=10**9) for device in cluster.devices)
    return replace(cluster, devices=tuple(devices))


def test_a_step_without_fusion_is_as_before():
    problem = made([light(f"op{i}", 5, 40) for i in range(3)], CHAIN, gpus(link(0, 1)))
    assert step(problem, 0, 0, 1).step_time_ns == 5 + 5 + 40 + 5
