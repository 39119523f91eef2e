"""The placed graph itself; no server runs it."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from gnnplace.cluster import Device
from gnnplace.execution.tensorflow.graph import EXTRA, placed, runnable
from gnnplace.execution.tensorflow.session import device_name
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.tensorflow.pruned import prune

SEND = f"{EXTRA}/send/"


def test_an_op_sends_by_output_then_by_destination_and_control_last():
    """`split` has two outputs and three takers, of which the one that waits for no tensor comes first in the plan, then from behind."""
    with tf.Graph().as_default() as built:
        first, second = tf.split(tf.ones([4]), 2, name="split")
        tf.identity(first, name="near")
        tf.identity(first, name="far")
        tf.identity(second, name="both")
        with tf.control_dependencies([first.op]):
            tf.constant(0.0, name="waits")
        with tf.control_dependencies([built.get_operation_by_name(name) for name in ("near", "far", "both", "waits")]):
            tf.no_op(name="loss")
    graph = read_step(built, ["loss"], "split")
    place = {"near": 1, "both": 1, "waits": 1, "far": 2}
    device = np.array([place.get(name, 0) for name in graph.op_names], dtype=np.int32)
    late = ["waits", "both", "far", "near", "loss"]
    order = np.array(sorted(graph.order.tolist(), key=lambda op: late.index(graph.op_names[op]) if graph.op_names[op] in late else -1))
    plan = ExecutionPlan(tuple(Device(f"cpu:{d}", "cpu", 0, 1, 1) for d in range(3)), device, order.astype(np.int32))
    names = [device_name(d) for d in range(3)]
    nodes = placed(runnable(prune(built, ["loss"]), {}), graph, plan, names).node
    sends = [node for node in nodes if node.name.startswith(f"{SEND}split/")]
    behind = {tuple(name for name in node.input if name.startswith(f"^{SEND}")): node for node in sends}
    turn = [behind[()]]
    while (before := (f"^{turn[-1].name}",)) in behind:
        turn.append(behind[before])
    sent = [(node.attr["tensor_name"].s.decode(), names.index(node.attr["recv_device"].s.decode())) for node in turn]
    assert sent[:3] == [("split:0", 1), ("split:0", 2), ("split:1", 1)]
    assert len(sent) == len(sends) == 4 and "/done/" in sent[3][0] and sent[3][1] == 1
