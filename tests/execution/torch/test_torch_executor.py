"""Placed PyTorch steps on pinned processes compute what eager PyTorch computes, wherever their ops stand."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.torch_steps import RANDOM, STEPS, cores, planned, problem, random_placement, spread, workload
from torch import Tensor, nn

from gnnplace.costs import roofline
from gnnplace.execution.measure import difference
from gnnplace.execution.torch import links
from gnnplace.execution.torch import processes as torch_processes
from gnnplace.execution.torch.device import DeviceTimes, timed
from gnnplace.execution.torch.program import Message, programs
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.execution.workload import LINK_SIZES_BYTES, ExecutionPlan, refuse
from gnnplace.frontends.torch.step import TorchStep
from gnnplace.graph import NONE
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate

pytestmark = pytest.mark.skipif(len(usable_cores()) < 2, reason="two CPU devices need two cores")

CHECKED_STEPS = 3


@pytest.mark.parametrize("name", STEPS)
def test_losses_and_variables_equal_eager_pytorch(name: str) -> None:
    step = workload(name)
    cluster = problem(step.graph, 2)
    expected, words = step.unplaced(CHECKED_STEPS)
    assert words == ("the traced step" if name in RANDOM else "eager PyTorch")
    assert len(set(expected.losses)) == CHECKED_STEPS
    for seed, schedule in ((0, "fifo"), (1, "critical-path")):
        plan, simulated = planned(cluster, random_placement(cluster, seed, schedule))
        assert simulated.transfers
        placed = step.start(plan)
        try:
            assert len(placed.run(CHECKED_STEPS)) == CHECKED_STEPS
            found = difference(placed.outputs(), expected, words)
        finally:
            placed.close()
        assert found.steps == CHECKED_STEPS
        assert found.variables == len(expected.variables) > 0
        assert found.largest <= 1e-6, (schedule, found)


def test_a_loss_that_is_a_view_of_what_was_received_is_kept() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    step = TorchWorkload(TorchStep(module, lambda m, x: (m(x) ** 2).mean(dim=0).squeeze(), (torch.randn(8, 4),), "sgd"), "view")
    expected, words = step.unplaced(CHECKED_STEPS)
    for seed in range(6):
        placed = step.start(spread(step.graph, cores(2).devices, seed))
        try:
            placed.run(CHECKED_STEPS)
            assert difference(placed.outputs(), expected, words).largest <= 1e-6
        finally:
            placed.close()


def test_steps_go_on_where_the_last_one_ended() -> None:
    step = workload("cells")
    cluster = problem(step.graph, 2)
    expected, words = step.unplaced(5)
    placed = step.start(planned(cluster, random_placement(cluster, 5))[0])
    try:
        placed.run(1)
        placed.op_times(2)
        placed.peak_memory_bytes()  # two steps, the first time
        assert difference(placed.outputs(), expected, words).largest <= 1e-6
    finally:
        placed.close()


@pytest.mark.parametrize("name", ["branches", "views"])
def test_op_times_cover_every_call_and_keep_every_edge(name: str) -> None:
    step = workload(name)
    graph, cluster = step.graph, problem(step.graph, 2)
    assignment = planned(cluster, random_placement(cluster, 0))[0]
    placed = step.start(assignment)
    try:
        measured = placed.op_times(5)
    finally:
        placed.close()
    calls = sorted(op for node, op in step._traced.op_of.items() if node.op == "call_function")
    assert len(measured) == 5
    for times in measured:
        assert np.flatnonzero(times.start_ns >= 0).tolist() == sorted(set(calls))
        assert ((times.end_ns > times.start_ns) | (times.start_ns == -1)).all()
    src, dst = graph.edge_src, graph.edge_dst
    both = np.isin(src, calls) & np.isin(dst, calls)
    assert both.any()
    between = np.array([(times.start_ns[dst] - times.end_ns[src])[both] for times in measured])
    here = (assignment.device[src] == assignment.device[dst])[both]
    assert 0 < here.sum() < len(here)
    assert (between[:, here] >= 0).all()
    # a virtual machine may let one core's clock lag the other's by some 50 us for the length of a step: rare enough for a median
    assert (np.median(between[:, ~here], axis=0) >= 0).all()


@pytest.mark.parametrize("name", ["branches", "cells"])
def test_one_device_holds_what_the_simulator_says(name: str) -> None:
    """Variables, and values for as long as somebody needs them; nothing else, whatever the schedule."""
    step = workload(name)
    cluster = problem(step.graph, 2)
    plan, simulated = planned(cluster, Placement(np.zeros(step.graph.num_ops, dtype=np.int32)))
    placed = step.start(plan)
    try:
        peak = placed.peak_memory_bytes()
    finally:
        placed.close()
    assert simulated.peak_memory_bytes is not None
    assert peak[0] == pytest.approx(int(simulated.peak_memory_bytes[0]), rel=0.1)
    assert peak[1] == 0
    assert peak[0] == pytest.approx(simulated_peaks(step, plan)[0], rel=0.01)


def simulated_peaks(step: TorchWorkload, plan: ExecutionPlan) -> list[int]:
    """What the step holds as it runs under a plan."""
    there = replace(cores(2), devices=tuple(replace(device, received="parts") for device in cores(2).devices))
    (result,) = simulate(roofline.problem(step.as_run(plan), there), [Placement(plan.device, "fifo")])
    assert result.peak_memory_bytes is not None
    return result.peak_memory_bytes.tolist()


def test_workspace_is_what_an_op_allocates_beyond_its_outputs() -> None:
    module = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 3, padding=1))
    step = TorchWorkload(TorchStep(module, lambda m, x: m(x).square().mean(), (torch.rand(4, 8, 28, 28),), "sgd"), "convolutions")
    plan = ExecutionPlan(cores(2).devices, np.zeros(step.graph.num_ops, dtype=np.int32), step.graph.order)
    workspace = dict(zip(step.graph.op_names, step.as_run(plan).workspace_bytes.tolist(), strict=True))
    assert workspace["relu"] == 0 and max(workspace, key=lambda name: workspace[name]).startswith("convolution")
    assert workspace["convolution_backward"] >= 4 * 32 * 28 * 28 * 4  # it lays out at least the largest tensor anew
    placed = step.start(plan)
    try:
        assert placed.peak_memory_bytes()[0] == pytest.approx(simulated_peaks(step, plan)[0], rel=0.01)
    finally:
        placed.close()


def test_parts_of_one_tensor_are_received_apart() -> None:
    def loss(module: nn.Module, x: Tensor) -> Tensor:
        first, second, third = module(x).chunk(3, dim=1)
        return (first * second + third).square().mean()

    step = TorchWorkload(TorchStep(nn.Linear(64, 768), loss, (torch.rand(1024, 64),), "sgd"), "parts")
    away = {"mul", "add"}
    device = np.array([int(name in away) for name in step.graph.op_names], dtype=np.int32)
    assert device.sum() == len(away)
    plan = ExecutionPlan(cores(2).devices, device, step.graph.order)
    placed = step.start(plan)
    try:
        peak = placed.peak_memory_bytes()[1]
    finally:
        placed.close()
    assert peak == simulated_peaks(step, plan)[1] == 4 * 1024 * 256 * 4  # two parts and their product, then it, the third and their sum


def test_a_device_holds_what_it_receives_while_it_is_used() -> None:
    module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    step = TorchWorkload(TorchStep(module, lambda m, x: m(x).square().mean(), (torch.rand(1024, 64),), "sgd"), "relu")
    device = np.array([int(name == "relu") for name in step.graph.op_names], dtype=np.int32)
    assert device.sum() == 1
    placed = step.start(ExecutionPlan(cores(2).devices, device, step.graph.order))
    try:
        assert placed.peak_memory_bytes()[1] == 2 * 1024 * 256 * 4  # its input, received, and its output
    finally:
        placed.close()


def test_no_process_is_left() -> None:
    step = workload("branches")
    plan, _ = planned(problem(step.graph, 2), random_placement(problem(step.graph, 2), 0))
    placed = step.start(plan)
    processes = [worker._pid for worker in placed._workers]
    assert all(_lives(pid) for pid in processes)
    placed.close()
    placed.close()
    assert not any(_lives(pid) for pid in processes)


def test_more_devices_than_cores_are_unsupported() -> None:
    step = workload("branches")
    num_devices = len(usable_cores()) + 1
    order = np.array(step.graph.order, dtype=np.int32)
    plan = ExecutionPlan(cores(num_devices).devices, np.zeros(step.graph.num_ops, dtype=np.int32), order)
    with pytest.raises(MeasurementError, match=f"{num_devices} CPU devices need as many cores") as caught:
        step.start(plan)
    assert caught.value.outcome == "unsupported"


def test_a_device_that_cannot_hold_what_it_receives_is_out_of_memory_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for overhead in ("OVERHEAD_BYTES", "OVERHEAD_OP_BYTES"):
        monkeypatch.setattr(torch_processes, overhead, 0)
    step = workload("branches")
    plan, _ = planned(problem(step.graph, 2), random_placement(problem(step.graph, 2), 0))
    plan = replace(plan, devices=(plan.devices[0], replace(plan.devices[1], memory_bytes=1)))
    monkeypatch.setattr(torch_processes, "Worker", None)
    with pytest.raises(MeasurementError, match=f"{plan.devices[1].name} receives .* bytes in a step, and has 1$") as caught:
        step.start(plan)
    assert caught.value.outcome == "out_of_memory"


def test_the_limit_of_a_process_leaves_out_the_places_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken for the whole step, and its device needs them for a part of it: the measured peak says whether it fits."""
    step, seen = workload("branches"), list[int]()

    class Recorded:
        def __init__(self, name: str, core: int, limit: int, serve: object) -> None:
            seen.append(limit)

        def kill(self) -> None: ...

    monkeypatch.setattr(torch_processes, "Worker", Recorded)
    plan, simulated = planned(problem(step.graph, 2), random_placement(problem(step.graph, 2), 0))
    assert simulated.transfers
    step.start(plan).close()
    overhead = torch_processes.OVERHEAD_BYTES + torch_processes.OVERHEAD_OP_BYTES * step.graph.num_ops
    assert seen == [device.memory_bytes + overhead for device in plan.devices]


def test_what_a_device_holds_can_be_read_where_it_fills_its_memory() -> None:
    """Adam's state of a layer: 200 MB, all that the device has beside a step's buffers. To send it takes as much again."""
    module, rows = nn.Linear(4096, 4096, bias=False), torch.randn(1, 4096)
    step = TorchWorkload(TorchStep(module, lambda net, rows: net(rows).square().mean(), (rows,)), "layer")
    posed = problem(step.graph, 1)
    plan, _ = planned(posed, Placement(np.zeros(step.graph.num_ops, dtype=np.int32)))
    (result,) = simulate(posed, [Placement(plan.device)])
    placed = step.start(replace(plan, devices=(replace(plan.devices[0], memory_bytes=int(result.peak_memory_bytes[0])),)))
    try:
        placed.run(1)
        assert sum(value.nbytes for value in placed.outputs().variables.values()) > 2e8
    finally:
        placed.close()


def test_links_are_timed_by_the_messages_of_the_step_itself() -> None:
    step = workload("branches")
    samples = step.links(problem(step.graph, 2).cluster.devices)
    own, largest = set(step.graph.output_bytes.tolist()), int(step.graph.output_bytes.max())
    found = {sample.bytes for sample in samples}
    assert len(found & own) > 2 and max(found & own) <= largest
    assert found - own == {size for size in LINK_SIZES_BYTES if size > max(found & own)}
    assert all(sample.occupied_ns > 0 and sample.arrival_ns > 0 for sample in samples)
    assert sum(sample.bytes == LINK_SIZES_BYTES[-1] for sample in samples) == links.ROUNDS


class _Assembles(nn.Module):
    """States that are written into one tensor, step after step, and read in between."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        states, state = torch.zeros(3, 2, 4), torch.zeros(2, 4)
        for time in range(3):
            state = self.cell(x[time], state)
            states[time] = state
        return states


def test_links_need_no_placement_that_fits() -> None:
    """Colocation groups stay together, those that assemble a tensor in place too; however little memory the devices have."""
    step = TorchWorkload(TorchStep(_Assembles(), lambda module, x: module(x).square().mean(), (torch.randn(3, 2, 4),), "sgd"), "assembles")
    small = tuple(replace(device, memory_bytes=1) for device in cores(2).devices)
    drawn = [links._drawn(step._traced, np.random.default_rng(seed)) for seed in range(20)]
    assert all(0 < device.sum() < len(device) for device in drawn)
    for device in drawn:
        programs(step._traced, ExecutionPlan(small, device, step.graph.order))
        refuse(step.graph, ExecutionPlan(small, device, step.graph.order))
    assert {sample.bytes for sample in step.links(small)} > set(LINK_SIZES_BYTES[1:])


def test_a_message_arrives_as_much_later_as_those_that_somebody_waits_for() -> None:
    node = torch.fx.Graph().placeholder("value")
    ways = [(0, 0, torch.empty(8, device="meta")), (1, 1, torch.empty(2, device="meta"))]
    messages = [Message(number, node, src, 1 - src, tensor, number) for number, src, tensor in ways]

    def times(began: int, spans: list[tuple[int, int]]) -> DeviceTimes:
        starts, ends = zip(*spans, strict=True)
        return DeviceTimes(began, np.array([5, *starts[::-1]]), np.array([9, *ends[::-1]]))  # an op, then messages from the end

    here = [times(1000, [(10, 30), (0, 75)]), times(2000, [(10, 40), (70, 80)])]  # sends message 0, receives message 1
    there = [times(1010, [(15, 27), (40, 60)]), times(2010, [(90, 95), (40, 50)])]  # the other way round
    # message 0: 20 and 30 ns, awaited in step 0 (from 1025, before 1030), there at 1037: 7 later; message 1: 20 and 10, awaited in step 0,
    # there at 1075: 5 later, in step 1 not: sent at 2060, looked for from 2070 on
    assert timed(messages, [here, there]) == [(32, 25, 31), (8, 15, 21)]
    assert timed(messages[1:], [here[1:], there[1:]]) == [(8, 10, 10)]


def test_a_link_needs_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_processes, "usable_cores", lambda: [0])
    step = workload("branches")
    with pytest.raises(MeasurementError, match="2 CPU devices need as many cores, and there are 1") as caught:
        step.links(problem(step.graph, 2).cluster.devices)
    assert caught.value.outcome == "unsupported"


def test_a_wrong_plan_is_unsupported_before_anything_starts() -> None:
    step = workload("branches")
    right, _ = planned(problem(step.graph, 2), random_placement(problem(step.graph, 2), 0))
    groups = step.graph.colocation.index
    first, second = np.flatnonzero(groups == groups[groups != NONE][0])[:2]
    nowhere, split = right.device.copy(), right.device.copy()
    nowhere[first], split[second] = 2, 1 - right.device[first]
    for device, words in ((nowhere, "device 2 is none of the plan's 2"), (split, "is split")):
        with pytest.raises(MeasurementError, match=words) as caught:
            step.start(ExecutionPlan(right.devices, device, right.order))
        assert caught.value.outcome == "unsupported"
    with pytest.raises(ValueError, match="comes before"):
        step.start(ExecutionPlan(right.devices, right.device, right.order[::-1].copy()))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Kept(nn.Linear):
    """Keeps rows by the values of its weight."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return input[super().forward(input)[:, 0] > -1e9] * self.weight.sum()


def test_sizes_of_one_run_are_no_workload() -> None:
    step = TorchStep(Kept(2, 2), lambda m, x: m(x).sum(), (torch.rand(4, 2),), "sgd", sizes="run")
    with pytest.raises(ValueError, match=r'^step: was captured with sizes="run"'):
        TorchWorkload(step, "kept")
