"""What TensorFlow makes of a plan's devices."""

import os

import numpy as np
import pytest

pytest.importorskip("tensorflow")
if len(os.sched_getaffinity(0)) < 2:
    pytest.skip("needs two cores", allow_module_level=True)

import tensorflow as tf
from support.tensorflow_models import minimized, v1, variable

from gnnplace.cluster import Device
from gnnplace.corpus import clusters
from gnnplace.execution.tensorflow.servers import room_bytes
from gnnplace.execution.tensorflow.workload import TensorFlowWorkload
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output


def test_room_is_twice_what_a_device_holds_makes_and_receives_and_no_more_than_it_has():
    ops = [
        Op("variable", "VarHandleOp", persistent_bytes=1000),
        Op("split", "Split", outputs=(Output(10), Output(20))),
        Op("near", "Add", outputs=(Output(3),)),
        Op("far", "Add", outputs=(Output(5),)),
        Op("farther", "Add", outputs=(Output(7),)),
    ]
    graph = ComputationGraph.from_ops("room", ops, [(0, CONTROL, 1), (1, 0, 2), (1, 1, 3), (1, 1, 4), (2, CONTROL, 3), (2, 0, 4)])
    place = np.array([0, 0, 0, 1, 1], dtype=np.int32)

    def room(memory_bytes: int, kind: str = "cpu") -> list[int]:
        devices = (Device("cpu:0", "cpu", memory_bytes, 1, 1), Device(f"{kind}:1", kind, memory_bytes, 1, 1))
        return room_bytes(graph, ExecutionPlan(devices, place, graph.order))

    assert room(2**40) == [2 * (1000 + 10 + 20 + 3), 2 * (20 + 3 + 5 + 7)]
    assert room(100) == [100, 2 * (20 + 3 + 5 + 7)]
    assert room(2**40, kind="gpu") == [2 * (1000 + 10 + 20 + 3), 0]


@pytest.mark.parametrize("granted", [True, False])
def test_a_step_of_more_than_two_gibibytes_starts(granted, monkeypatch):
    """Its room is more than an int32 counts; and it starts where the host grants no such room."""
    if not granted:
        monkeypatch.setattr("gnnplace.execution.tensorflow.workload.room_bytes", lambda graph, plan: [2**50] * len(plan.devices))

    def build():
        weight = variable("weight", 4, start=0.5)
        large = tf.tile(tf.stop_gradient(weight.value()), [2**26])
        return minimized(tf.reduce_sum(weight.value()) + tf.reduce_max(large), v1.train.GradientDescentOptimizer(0.1))

    workload = TensorFlowWorkload(TensorFlowStep("large", build))
    devices, device = clusters.cluster("cpu-2").devices, np.zeros(workload.graph.num_ops, dtype=np.int32)
    try:
        step = workload.start(ExecutionPlan(devices, device, workload.graph.order))
        assert step.outputs().losses == (2.5,)
        assert 2**30 <= step.peak_memory_bytes()[0] < 1.1 * 2**30
    finally:
        workload.close()
