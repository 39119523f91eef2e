"""What TensorFlow's servers hold in real steps, beside what the simulator says of the graph as it is run."""

import os
import re
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("tensorflow")
if len(os.sched_getaffinity(0)) < 2:
    pytest.skip("needs two cores", allow_module_level=True)

import tensorflow as tf
from support.tensorflow_models import minimized, v1, variable

from gnnplace.corpus import clusters
from gnnplace.costs import roofline
from gnnplace.execution.tensorflow.memory import begin, end, recorded
from gnnplace.execution.tensorflow.servers import Template
from gnnplace.execution.tensorflow.workload import TensorFlowWorkload
from gnnplace.execution.workload import peak_bytes, plan
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

Optimized = tuple[tf.Tensor, tf.Operation]


def peaks(build: Callable[[], Optimized], second: str, template: Template) -> tuple[list[float], tuple[int, ...]]:
    """What both devices hold at most, measured (the median of five steps) and simulated; `second` has the ops whose names `second` finds.

    A variable's ops go by the name of its group.
    """
    workload = TensorFlowWorkload(TensorFlowStep(build.__name__, build), template=template)
    problem, group = roofline.problem(workload.graph, clusters.cluster("cpu-2")), workload.graph.colocation
    words = [group.values[i] if i >= 0 else name for i, name in zip(group.index, workload.graph.op_names, strict=True)]
    placement = Placement(np.array([re.search(second, each) is not None for each in words], dtype=np.int32))
    [result] = simulate(problem, [placement], timeline=True)
    chosen = plan(problem, placement, result.timeline)
    step = workload.start(chosen)
    try:
        measured = np.median([step.peak_memory_bytes() for _ in range(5)], axis=0)
    finally:
        step.close()
    runs = Problem(workload.as_run(chosen), problem.cluster, problem.time_ns)
    return measured.tolist(), simulate(runs, [Placement(placement.device, "fifo")])[0].peak_memory_bytes


def wide(width: int) -> Optimized:
    """Products of square matrices."""
    x = v1.placeholder(tf.float32, (width, width), "x")
    for layer in range(4):
        x = tf.tanh(tf.matmul(x, variable(f"layer_{layer}", width, width)))
    return minimized(tf.reduce_mean(tf.square(x)), v1.train.GradientDescentOptimizer(0.1))


@pytest.mark.parametrize("width", [512, 160])  # 1 MiB, and less than what TensorFlow's statistics know of
@pytest.mark.parametrize("second", ["nothing", "layer_2|MatMul_2|Tanh_2", "layer_[23]|MatMul_[23]|Tanh_[23]", "layer_3"])
def test_peak_memory_is_that_of_the_simulator(second, width, template):
    measured, simulated = peaks(lambda: wide(width), second, template)
    within = 0.01 if second == "nothing" else 1.01  # of a tensor: elsewhere one more or less is held, by when messages arrive
    assert measured == pytest.approx(simulated, abs=within * width * width * 4)


def summed() -> Optimized:
    """Four products, their sum, and a small variable that is trained."""
    x = v1.placeholder(tf.float32, (512, 512), "x")
    parts = [tf.matmul(x, x * float(part), name=f"product_{part}") for part in range(4)]
    total = tf.reduce_mean(tf.add_n(parts, name="sum"), name="total")
    return minimized(total + tf.reduce_mean(variable("small", 160, 160)), v1.train.GradientDescentOptimizer(0.1))


def test_what_waits_for_a_sum_that_writes_over_it_counts_and_so_do_small_tensors(template):
    """No op of the device allocates while it holds all four: only the allocator knows. Of the small variable only the graph does."""
    (measured, _), _ = peaks(summed, "^(x|mul|product)", template)
    large, small = 512 * 512 * 4, 160 * 160 * 4
    assert 4 * large + small <= measured <= 4 * large + 4 * small


def back_and_forth() -> Optimized:
    """A product here; there, where the placeholder is, another of it, which can't be written over what it reads."""
    x, kernel = v1.placeholder(tf.float32, (512, 512), "x"), variable("kernel", 512, 512)
    product = tf.matmul(x, kernel)
    return minimized(tf.reduce_mean(tf.matmul(product, product, name="there")), v1.train.GradientDescentOptimizer(0.1))


def test_a_placeholder_is_held_where_it_is_to_the_end_of_the_step(template):
    """What is multiplied there comes long after the placeholder has been sent, and both are held."""
    (_, measured), (_, simulated) = peaks(back_and_forth, "^(x|there)$", template)
    large = 512 * 512 * 4
    assert [measured, simulated] == pytest.approx([3 * large, 3 * large], abs=0.01 * large)


def mebibytes(number: float) -> tf.Tensor:
    return tf.fill([int(number * 2**18)], 1.0)


def test_what_counts_is_what_was_asked_for_and_not_what_the_allocator_gave(tmp_path):
    """A free piece of less than twice the size is given whole: what takes the place of 1.75 MiB, between two that stay, counts as 1 MiB."""
    kept = [mebibytes(8)]
    before = begin(str(tmp_path))
    freed, *others = mebibytes(1.75), mebibytes(1), mebibytes(0.1)
    del freed
    others += [mebibytes(1), mebibytes(1)]
    end()
    assert len(kept) == 1 and len(others) == 4
    assert before >= 8 * 2**20
    held = [now - before for _, now in recorded(tmp_path, before)]
    assert held == [mebibyte * 2**20 for mebibyte in (0, 1.75, 2.75, 1, 2, 3)]


def test_what_was_there_before_is_freed_as_it_was_counted(tmp_path):
    kept = [mebibytes(8)]
    before = begin(str(tmp_path))
    kept.clear()
    others = [mebibytes(3), mebibytes(6)]
    end()
    assert len(others) == 2
    assert [now - before for _, now in recorded(tmp_path, before)] == [mebibyte * 2**20 for mebibyte in (0, -8, -5, 1)]


def test_the_most_is_held_after_what_is_freed_at_the_same_time():
    assert peak_bytes([(5, -3), (1, 3), (5, 2), (9, -2)]) == 3
    assert peak_bytes([(1, -3), (2, 1)]) == peak_bytes([]) == 0


def plateaus() -> Optimized:
    """As many large tensors at the last of three times as at the first, when many small ones are held, too."""
    x = v1.placeholder(tf.float32, (160, 160), "x")
    small = [tf.matmul(x, x * float(part), name=f"small_{part}") for part in range(8)]
    large = tf.reduce_sum(tf.matmul(tf.tile(x, (4, 4)), tf.tile(small[0], (4, 4))), name="first")
    total = tf.add_n([*small, tf.fill((160, 160), large)], name="sum")
    again = tf.reduce_sum(tf.matmul(tf.tile(total, (4, 4)), tf.tile(total, (4, 4))), name="again")
    return minimized(again + tf.reduce_mean(variable("weight", 16, 16)), v1.train.GradientDescentOptimizer(0.1))


def test_small_tensors_count_when_most_is_held_and_not_when_that_was_last_so(template):
    (measured, _), (simulated, _) = peaks(plateaus, "nothing", template)
    assert measured == pytest.approx(simulated, rel=0.01)
