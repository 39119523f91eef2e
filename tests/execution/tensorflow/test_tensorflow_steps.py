"""TensorFlow steps on two pinned processes: they compute what the unplaced step does, run where and in which order the plan says."""

import os

import numpy as np
import pytest

pytest.importorskip("tensorflow")
if len(os.sched_getaffinity(0)) < 2:
    pytest.skip("needs two cores", allow_module_level=True)

import tensorflow as tf
from support.tensorflow_models import MODELS, minimized, v1, variable

from gnnplace.corpus import clusters
from gnnplace.costs import roofline
from gnnplace.execution.tensorflow.links import profile_link
from gnnplace.execution.tensorflow.step_links import sent_bytes
from gnnplace.execution.tensorflow.trace import cut
from gnnplace.execution.tensorflow.workload import TensorFlowWorkload
from gnnplace.execution.workload import LINK_SIZES_BYTES, ExecutionPlan, RunningStep, Workload, plan
from gnnplace.frontends.tensorflow.step import Machine, TensorFlowStep
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import expand, units

STEPS = 4


def cpus(workload: TensorFlowWorkload) -> Problem:
    return roofline.problem(workload.graph, clusters.cluster("cpu-2"))


def random_placement(problem: Problem, seed: int, schedule: str) -> Placement:
    chosen = units(problem.graph, "ops")
    device = np.random.default_rng(seed).integers(0, 2, chosen.num_units).astype(np.int32)
    return Placement(expand(chosen, device), schedule=schedule)


def simulated_plan(problem: Problem, placement: Placement) -> tuple[ExecutionPlan, StepResult]:
    """The plan of a placement and its simulated step."""
    [result] = simulate(problem, [placement], timeline=True)
    return plan(problem, placement, result.timeline), result


def assert_equal(placed, reference) -> None:
    np.testing.assert_allclose(placed.losses, reference.losses, rtol=1e-5)
    assert set(placed.variables) == set(reference.variables)
    for name, value in reference.variables.items():
        np.testing.assert_allclose(placed.variables[name], value, rtol=1e-4, atol=1e-5 * max(1e-3, np.abs(value).max()), err_msg=name)


@pytest.mark.parametrize("spec", MODELS, ids=lambda spec: spec.name)
def test_a_placed_step_computes_what_the_unplaced_one_does(spec, template):
    workload = TensorFlowWorkload(spec, template=template)
    assert isinstance(workload, Workload) and workload.differences == ()
    problem = cpus(workload)
    reference, words = workload.unplaced(STEPS)
    assert len(set(reference.losses)) == STEPS and "TensorFlow" in words
    moved = [name for name, value in workload._start_values.items() if not np.array_equal(value, reference.variables[name])]
    assert len(moved) > 0.7 * len(reference.variables)  # a comparison of what never changes shows nothing
    for seed, schedule in enumerate(("critical-path", "fifo")):
        chosen, simulated = simulated_plan(problem, random_placement(problem, seed, schedule))
        step = workload.start(chosen)
        assert isinstance(step, RunningStep)
        try:
            assert all(time > 0 for time in step.run(STEPS - 1))  # the first has been run to check it
            assert_equal(step.outputs(), reference)
            sent = step.trace(partitions=True).transfers()
        finally:
            step.close()
        assert len(sent) == len(set(sent)) and set(sent) == cut(problem.graph, chosen)
        sizes = [0 if k < 0 else problem.graph.output_bytes[problem.graph.output_ptr[src] + k] for src, k, _ in sent]
        assert sorted(sizes) == sorted(sent_bytes(problem.graph, chosen))  # what links are fitted to: control messages, too
        assert sum(output >= 0 for _, output, _ in sent) == simulated.transfers > 0
        runs = Problem(workload.as_run(chosen), problem.cluster, problem.time_ns)
        assert simulate(runs, [Placement(chosen.device, "fifo")])[0].transfers == len(sent)  # control edges, too


def test_each_device_takes_its_ops_in_the_order_of_the_plan(template):
    workload = TensorFlowWorkload(MODELS[0], template=template)
    problem = cpus(workload)
    chosen, _ = simulated_plan(problem, random_placement(problem, 3, "critical-path"))
    step = workload.start(chosen)
    try:
        for times in step.op_times(2):
            assert times.start_ns.min() == 0 and (times.end_ns >= times.start_ns).all()
            for d in range(2):
                ops = chosen.order[chosen.device[chosen.order] == d]
                assert (times.start_ns[ops[1:]] >= times.end_ns[ops[:-1]]).all()
    finally:
        step.close()


def test_a_step_starts_the_same_each_time(template):
    workload = TensorFlowWorkload(MODELS[3], template=template)  # with dropout
    problem = cpus(workload)
    losses = []
    for seed in range(2):
        step = workload.start(simulated_plan(problem, random_placement(problem, seed, "fifo"))[0])
        step.run(2)
        losses.append(step.outputs().losses)
        step.close()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert TensorFlowWorkload(MODELS[3], template=template).unplaced(3)[0].losses == workload.unplaced(3)[0].losses


def late() -> tuple[tf.Tensor, tf.Operation]:
    """`there` needs what is made first; then follow long products, and the loss needs all of it."""
    x, kernel = v1.placeholder(tf.float32, (512, 512), "x"), variable("kernel", 512, 512)
    there = tf.reduce_mean(tf.tanh(x), name="there")
    for layer in range(30):
        x = tf.matmul(x, kernel, name=f"product_{layer}")
    return minimized(tf.reduce_mean(tf.square(x)) + there, v1.train.GradientDescentOptimizer(1e-9))


def test_a_device_sends_while_it_computes(template):
    workload = TensorFlowWorkload(TensorFlowStep("late", late), template=template)
    problem, names = cpus(workload), workload.graph.op_names
    device = np.array([name == "there" for name in names], dtype=np.int32)
    step = workload.start(simulated_plan(problem, Placement(device, "fifo"))[0])
    try:
        for times in step.op_times(3):
            assert times.end_ns[names.index("there")] < times.start_ns[names.index("product_29")]
    finally:
        step.close()


def test_reads_and_shapes_are_what_the_computation_graph_has(template):
    def build():
        x, kernel = v1.placeholder(tf.float32, (4, 6, 6, 2), "x"), variable("kernel", 3, 3, 2, 2)
        y = tf.nn.conv2d(tf.nn.conv2d(x, kernel, 1, "SAME"), kernel, 1, "SAME")
        return minimized(tf.reduce_sum(tf.square(y)), v1.train.GradientDescentOptimizer(0.001))

    workload = TensorFlowWorkload(TensorFlowStep("shared", build), template=template)
    kinds = [node.op for node in workload._runnable.nodes]
    assert sum(op.type == "ReadVariableOp" for op in workload._built.get_operations()) > kinds.count("ReadVariableOp") == 1
    assert not {"Shape", "ShapeN", "Placeholder"} & set(kinds)
    problem = cpus(workload)
    step = workload.start(simulated_plan(problem, random_placement(problem, 1, "fifo"))[0])
    step.run(2)
    assert_equal(step.outputs(), workload.unplaced(3)[0])
    step.close()


def test_a_link_is_timed_by_size(template):
    times = profile_link(clusters.cluster("cpu-2").devices, Machine(), template, sizes=(2**8, 2**22))
    assert [time.bytes for time in times] == [2**8, 2**22]
    assert all(time.arrival_ns >= time.occupied_ns > 0 for time in times)
    assert times[1].occupied_ns > 2 * times[0].occupied_ns  # 4 MiB are copied


def test_links_between_cores_are_what_messages_take_in_steps(template):
    workload = TensorFlowWorkload(MODELS[0], template=template)
    samples = workload.links(clusters.cluster("cpu-2").devices)
    assert [sample.bytes for sample in samples] == list(LINK_SIZES_BYTES)
    assert all(sample.arrival_ns == 2 * sample.occupied_ns for sample in samples)
    assert 10_000 < samples[0].occupied_ns < 10**7 and samples[0].occupied_ns < samples[-1].occupied_ns


def test_a_small_constant_that_both_devices_need_is_sent(template):
    """Left alone, TensorFlow would have one on each."""

    def build():
        half, weights = tf.constant(0.5, name="half"), [variable(name, 4) for name in ("a", "b")]
        return minimized(tf.reduce_sum([half * tf.square(weight) for weight in weights]), v1.train.GradientDescentOptimizer(0.1))

    workload = TensorFlowWorkload(TensorFlowStep("constant", build), template=template)
    names = workload.graph.op_names
    device = np.zeros(len(names), dtype=np.int32)
    device[names.index("mul_1")] = 1
    chosen = ExecutionPlan(cpus(workload).cluster.devices, device, workload.graph.order)
    step = workload.start(chosen)
    try:
        assert (names.index("half"), 0, 1) in step.trace(partitions=True).transfers()
    finally:
        step.close()
