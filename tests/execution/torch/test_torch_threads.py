"""The executor of GPUs: on CPU devices as threads, which is all of it but the streams; on logical GPUs where there is one."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch
from support import torch_steps

from gnnplace.execution.measure import difference
from gnnplace.execution.torch import lanes, streams
from gnnplace.execution.torch.device import DeviceTimes, TorchDevice, merged
from gnnplace.execution.torch.program import programs
from gnnplace.execution.torch.threads import TorchThreads
from gnnplace.execution.torch.values import random_nodes
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.execution.workload import LINK_SIZES_BYTES, ExecutionPlan, RunningStep
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores

STEPS = 3
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device here")


def threads(workload: TorchWorkload, plan: ExecutionPlan) -> TorchThreads:
    return TorchThreads(workload._traced, plan, workload._held)


@pytest.mark.parametrize("name", torch_steps.STEPS)
@pytest.mark.parametrize("count", [2, 4])
def test_threads_compute_what_eager_does(name: str, count: int) -> None:
    workload = torch_steps.workload(name)
    plan = torch_steps.spread(workload.graph, torch_steps.devices(*["cpu"] * count), seed=count)
    assert sum(len(program.instructions) > 0 for program in programs(workload._traced, plan)) > 1
    with closing(threads(workload, plan)) as step:
        assert len(step.run(STEPS)) == STEPS
        found = difference(step.outputs(), *workload.unplaced(STEPS))
    assert found.largest < 1e-5
    assert found.steps == STEPS
    assert found.variables > 0


def test_a_wrong_result_is_seen() -> None:
    workload = torch_steps.workload("cells")
    plan = torch_steps.spread(workload.graph, torch_steps.devices("cpu", "cpu"), seed=1)
    with closing(threads(workload, plan)) as step:
        step.run(STEPS)
        assert difference(step.outputs(), *workload.unplaced(STEPS - 1)).largest > 1e-4  # another number of steps


def test_times_of_ops_and_memory() -> None:
    workload = torch_steps.workload("branches")
    plan = torch_steps.spread(workload.graph, torch_steps.devices("cpu", "cpu"), seed=0)
    with closing(threads(workload, plan)) as step:
        measured = step.op_times(5)
        peaks = step.peak_memory_bytes()
        assert len(step.run(1)) == 1
        assert step.described() == ["a thread on the CPU"] * 2
        assert len(step.outputs().losses) == 5 + 2 + 1  # five timed, one step for the memory of each device, one more
    ran = measured[0].start_ns >= 0
    assert ran.any()
    for times in measured:
        assert (times.end_ns[ran] >= times.start_ns[ran]).all() and (times.end_ns[~ran] == -1).all()
    src, dst = workload.graph.edge_src, workload.graph.edge_dst
    # the clocks of two cores may differ for once, hence the median
    between = np.median([times.start_ns[dst] - times.end_ns[src] for times in measured], axis=0)
    assert (between[ran[src] & ran[dst]] >= 0).all()
    variables = sum(4 * parameter.numel() for parameter in torch_steps.STEPS["branches"]().module.parameters())
    assert sum(peaks) > 3 * variables  # and Adam's two moments


def test_one_device_has_no_messages() -> None:
    workload = torch_steps.workload("convolutions")
    plan = ExecutionPlan(torch_steps.devices("cpu"), np.zeros(workload.graph.num_ops, dtype=np.int32), workload.graph.order)
    with closing(threads(workload, plan)) as step:
        step.run(STEPS)
        assert difference(step.outputs(), *workload.unplaced(STEPS)).largest == 0
        assert not step._transport._slots


@pytest.mark.parametrize(("error", "outcome"), [(torch.OutOfMemoryError("out of memory"), "out_of_memory"), (ValueError("odd"), "crash")])
def test_a_device_that_fails_wakes_the_others(error: Exception, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = torch_steps.workload("dropout")
    plan = torch_steps.spread(workload.graph, torch_steps.devices("cpu", "cpu", "cpu"), seed=3)
    step = threads(workload, plan)

    def fail(self: lanes.NoStream, value: int) -> None:
        raise error

    monkeypatch.setattr(lanes.NoStream, "seed", fail)
    with pytest.raises(MeasurementError) as failed:
        step.run(1)
    assert failed.value.outcome == outcome
    assert step._devices == []


def test_times_of_devices_count_from_the_first() -> None:
    early = DeviceTimes(100, np.array([0, -1]), np.array([5, -1]))
    late = DeviceTimes(130, np.array([-1, 2]), np.array([-1, 9]))
    found = merged([late, early], 2)
    assert found.start_ns.tolist() == [0, 32]
    assert found.end_ns.tolist() == [5, 39]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_gpus_are_refused_without_one() -> None:
    workload = torch_steps.workload("branches")
    plan = torch_steps.spread(workload.graph, torch_steps.devices("cpu", "gpu"), seed=0)
    for ask in (lambda: workload.start(plan), lambda: workload.unplaced(1, "gpu"), lambda: workload.links(plan.devices)):
        with pytest.raises(MeasurementError, match="no CUDA device") as refused:
            ask()
        assert refused.value.outcome == "unsupported"


def test_a_kind_that_is_neither_is_refused() -> None:
    workload = torch_steps.workload("branches")
    plan = torch_steps.spread(workload.graph, torch_steps.devices("cpu", "tpu"), seed=0)
    with pytest.raises(MeasurementError, match="tpu"):
        workload.start(plan)


def test_random_ops_on_both_kinds_have_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    workload = torch_steps.workload("dropout")
    plan = torch_steps.spread(workload.graph, torch_steps.devices("gpu", "cpu"), seed=0)
    assert 1 in {plan.device[workload._traced.op_of[node]] for node in random_nodes(workload._traced.trace.graph)}
    with pytest.raises(MeasurementError, match="random numbers") as refused:
        workload.start(plan)
    assert refused.value.outcome == "unsupported"


def test_values_are_packed_as_they_are_sent() -> None:
    value = torch.arange(24.0).reshape(4, 6).t()[::2]
    like = torch.empty_like(value, device="meta")
    packed = streams._packed(value, like)
    assert packed.stride() == like.stride() and torch.equal(packed, value)
    assert streams._packed(packed, like) is packed


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", torch_steps.STEPS)
@pytest.mark.parametrize("kinds", [("gpu",), ("gpu", "gpu"), ("gpu", "gpu", "gpu", "gpu"), ("cpu", "gpu")])
def test_gpus_compute_what_eager_does(name: str, kinds: tuple[str, ...]) -> None:
    if name == "dropout" and "cpu" in kinds:
        pytest.skip("random numbers of a CPU and a GPU differ: such a placement is refused, which another test shows")
    workload = torch_steps.workload(name)
    plan = torch_steps.spread(workload.graph, torch_steps.devices(*kinds), seed=1)
    step: RunningStep = workload.start(plan)
    with closing(step):
        step.run(20)
        assert difference(step.outputs(), *workload.unplaced(20, "gpu")).largest < 1e-3
        (times,) = step.op_times(1)
        assert times.end_ns.max() > 0
        assert min(step.peak_memory_bytes()) > 0


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kinds", [("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "gpu")])
def test_links_of_gpus(kinds: tuple[str, str]) -> None:
    workload = torch_steps.workload("convolutions")
    samples = workload.links(torch_steps.devices(*kinds))
    assert {sample.bytes for sample in samples} == set(LINK_SIZES_BYTES)
    assert all(0 < sample.occupied_ns <= sample.arrival_ns for sample in samples)


def test_a_device_keeps_its_own_copy_of_the_variables() -> None:
    workload = torch_steps.workload("cells")
    plan = ExecutionPlan(torch_steps.devices("cpu"), np.zeros(workload.graph.num_ops, dtype=np.int32), workload.graph.order)
    before = {node: value.clone() for node, value in workload._held.values.items()}
    with closing(threads(workload, plan)) as step:
        step.run(2)
        assert isinstance(step._devices[0], TorchDevice)
    assert all(torch.equal(before[node], value) for node, value in workload._held.values.items())


@pytest.mark.skipif(len(usable_cores()) < 2, reason="two devices need two cores")
@pytest.mark.parametrize("name", ["dropout", "convolutions"])
def test_processes_run_the_same_devices(name: str) -> None:
    workload = torch_steps.workload(name)
    plan = torch_steps.spread(workload.graph, torch_steps.devices("cpu", "cpu"), seed=2)
    with closing(workload.start(plan)) as step:
        step.run(STEPS)
        assert difference(step.outputs(), *workload.unplaced(STEPS)).largest < 1e-5
        assert all(words.startswith("a process on core") for words in step.described())
        assert min(step.peak_memory_bytes()) > 0
