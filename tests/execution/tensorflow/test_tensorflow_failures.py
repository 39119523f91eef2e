"""What can go wrong with a placed TensorFlow step comes to the right outcome, with its reason, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("tensorflow")

if len(os.sched_getaffinity(0)) < 2:
    pytest.skip("needs two cores", allow_module_level=True)

import tensorflow as tf
from support.processes import LATE_S
from support.tensorflow_models import MODELS, minimized, v1, variable

from gnnplace.cluster import Device
from gnnplace.execution.tensorflow.servers import Template
from gnnplace.execution.tensorflow.trace import RunTrace
from gnnplace.execution.tensorflow.workload import TensorFlowWorkload
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.graph import NONE
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores


@pytest.fixture(scope="module")
def branches(template) -> TensorFlowWorkload:
    return TensorFlowWorkload(MODELS[0], template=template)


def plan(workload: TensorFlowWorkload, devices: int = 2, **at: int) -> ExecutionPlan:
    """All on the first device, but for ops whose names are given."""
    device = np.zeros(workload.graph.num_ops, dtype=np.int32)
    for name, d in at.items():
        device[workload.graph.op_names.index(name)] = d
    kinds = tuple(Device(f"cpu:{d}", "cpu", 0, 1, 1) for d in range(devices))
    return ExecutionPlan(kinds, device, workload.graph.order)


@contextmanager
def fails(outcome: str, *words: str):
    with pytest.raises(MeasurementError) as caught:
        yield
    assert caught.value.outcome == outcome
    for word in words:
        assert word in caught.value.reason


def gone(pid: int, wait_s: float = LATE_S) -> bool:
    until = time.monotonic() + wait_s
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.02)
    return not os.path.exists(f"/proc/{pid}")


def test_a_device_that_does_not_exist_is_refused(branches):
    with fails("unsupported", "'x'", "device 2"):
        branches.start(plan(branches, x=2))


def test_a_split_colocation_group_is_refused(branches):
    group = branches.graph.colocation
    second = np.flatnonzero(group.index == group.index[group.index != NONE][0])[1]
    name = branches.graph.op_names[second]
    with fails("unsupported", "split", repr(name)):
        branches.start(plan(branches, **{name: 1}))


def test_more_devices_than_cores_are_refused(branches):
    devices = len(os.sched_getaffinity(0)) + 1
    with fails("unsupported", f"{devices} devices", f"{devices - 1} cores"):
        branches.start(plan(branches, devices=devices))


def test_an_order_that_is_none_is_a_mistake_of_the_caller(branches):
    right = plan(branches)
    with pytest.raises(ValueError, match="comes before"):
        branches.start(ExecutionPlan(right.devices, right.device, right.order[::-1].copy()))
    with pytest.raises(ValueError, match="each of the"):
        branches.start(ExecutionPlan(right.devices, right.device, np.zeros_like(right.order)))


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(branches):
    cpu = plan(branches, devices=1)
    device = cpu.device.copy()
    device[branches.graph.op_names.index("x")] = 1
    with fails("unsupported", "'x'", "gpu:0"):
        branches.start(ExecutionPlan((*cpu.devices, Device("gpu:0", "gpu", 0, 1, 1)), device, cpu.order))


def test_an_op_without_a_kernel_is_refused_with_its_name(template):
    def build():
        weight = variable("weight", 4, 2, 3)
        loss = tf.raw_ops.CTCLossV2(
            inputs=weight.value(), labels_indices=tf.constant([[0, 0]], tf.int64), labels_values=[1], sequence_length=[4, 4], name="ctc"
        ).loss  # for GPUs alone
        return tf.reduce_sum(loss), tf.group(weight.assign_sub(weight))

    workload = TensorFlowWorkload(TensorFlowStep("ctc", build), template=template)
    with fails("unsupported", "'ctc'", "cpu:1"):
        workload.start(plan(workload, ctc=1))


def test_a_step_that_no_memory_holds_is_out_of_memory(template):
    def build():
        weight = variable("weight", 4)
        large = tf.tile(weight.value(), [2**43])
        return minimized(tf.reduce_sum(weight.value()) + tf.reduce_max(large), v1.train.GradientDescentOptimizer(0.1))

    workload = TensorFlowWorkload(TensorFlowStep("large", build), template=template)
    with fails("out_of_memory", "OOM"):
        workload.start(plan(workload))


def test_a_server_that_dies_is_a_crash_with_its_signal(branches):
    step = branches.start(plan(branches))
    pids = [server.pid for server in step.servers]
    killer = threading.Timer(0.3, os.kill, (pids[0], signal.SIGSEGV))
    killer.start()
    with fails("crash", "cpu:0", "SIGSEGV"):
        step.run(10**9)
    killer.join()
    step.close()
    assert all(map(gone, pids))
    again = branches.start(plan(branches))  # what forks servers has survived
    assert len(again.run(2)) == 2
    again.close()


def test_closing_ends_the_processes(branches):
    step = branches.start(plan(branches))
    pids = [server.pid for server in step.servers]
    step.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    step.close()  # twice is once


def test_what_forks_servers_has_one_thread(branches):
    branches.start(plan(branches)).close()
    assert len(os.listdir(f"/proc/{branches.template._process.pid}/task")) == 1


def test_servers_are_pinned_each_to_its_core(branches):
    step = branches.start(plan(branches))
    cores = [os.sched_getaffinity(server.pid) for server in step.servers]
    step.close()
    assert cores == [{core} for core in usable_cores()[:2]]


def test_servers_die_with_the_process_that_started_them():
    script = """if True:
        import time
        from gnnplace.execution.tensorflow.servers import Template
        order = {"core": 0, "logical_gpus": 0, "logical_gpu_bytes": 0}
        template = Template()
        print(template.start([order])[0].pid, template._process.pid, flush=True)
        time.sleep(600)
    """.replace('"core": 0', f'"core": {min(os.sched_getaffinity(0))}')
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(os.getpgid(pid) == os.getpgid(0) for pid in pids)
        parent.kill()
    assert all(map(gone, pids))


def order(core: int) -> dict[str, int]:
    return {"core": core, "logical_gpus": 0, "logical_gpu_bytes": 0}


def children(template: Template) -> list[str]:
    return open(f"/proc/{template._process.pid}/task/{template._process.pid}/children").read().split()


def test_a_server_that_does_not_start_is_a_crash_and_stops_the_others(template):
    core = min(os.sched_getaffinity(0))
    for _ in range(2):
        with fails("crash", "did not start"):
            template.start([order(core), order(10**6), order(core)])
        assert children(template) == []
        servers = template.start([order(core), order(core)])
        assert children(template) == [str(server.pid) for server in servers]
        template.stop(servers)


def test_what_comes_late_of_an_older_start_is_nothing_to_a_later_one(template, monkeypatch):
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr("gnnplace.execution.tensorflow.servers.END_S", 0.0)
    monkeypatch.setattr("gnnplace.execution.tensorflow.servers.START_S", 0.0)
    with fails("crash", "did not start"):
        template.start([order(core)])
    monkeypatch.setattr("gnnplace.execution.tensorflow.servers.START_S", 120.0)
    first = template.start([order(core)])
    template.stop(first)  # END_S: nobody waits for its end
    second = template.start([order(core)])
    assert children(template) == [str(server.pid) for server in second]
    monkeypatch.undo()
    assert template.exit_code(second[0], 0.5) is None
    template.stop(second)
    assert children(template) == []


def test_a_step_that_cannot_be_placed_leaves_no_server(branches, monkeypatch):
    branches.start(plan(branches)).close()

    def fail(*_: object) -> None:
        raise RuntimeError("not placed")

    monkeypatch.setattr("gnnplace.execution.tensorflow.workload.placed", fail)
    with pytest.raises(RuntimeError, match="not placed"):
        branches.start(plan(branches))
    assert children(branches.template) == []


def test_a_trace_that_is_not_the_plan_is_found(branches):
    """The check of the first step against plans that differ from what ran."""
    ran = plan(branches)
    step = branches.start(ran)
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    metadata = v1.RunMetadata()
    step._session.run(step._fetches, options=options, run_metadata=metadata)
    step.close()
    trace = RunTrace(branches.graph, step.devices, metadata)
    trace.check(ran, ())
    with fails("crash", "'x'", "device 1"):
        trace.check(plan(branches, x=1), ())
    metadata.partition_graphs[0].node.add(name="sent", op="_Send", input=["x"]).attr["recv_device"].s = step.devices[1].encode()
    with fails("crash", "x:0", "cpu:1"):
        trace.check(ran, ())
    for graph in metadata.partition_graphs:
        for node in graph.node:
            node.name = "" if node.name == "x" else node.name
    with fails("unsupported", "'x'"):
        trace.check(ran, ())
