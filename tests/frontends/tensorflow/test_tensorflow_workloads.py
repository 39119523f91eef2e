"""The TensorFlow workloads of the corpus: their sizes by formula, their roles, and that their steps really train."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from support.rebuilding import rebuilt

from datasets import build_tensorflow
from datasets.build import (
    tensorflow_inception,
    tensorflow_nasnet,
    tensorflow_nmt,
    tensorflow_resnet,
    tensorflow_rnnlm,
    tensorflow_vgg,
)
from datasets.build.tensorflow_adam import BETA1, BETA2, EPSILON, RATE, minimize
from datasets.build_tensorflow import WORKLOADS
from gnnplace.corpus import manifest
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.graph import NONE, ComputationGraph

v1 = tf.compat.v1


graph = cache(manifest.graph)


@pytest.fixture(params=list(WORKLOADS))
def workload(request) -> ComputationGraph:
    return graph(request.param)


PRODUCTS = ("matmul", "conv", "conv_grad_weight", "conv_grad_input")


def product_flops(graph: ComputationGraph, phase: str, kinds: Sequence[str] = ("matmul",)) -> int:
    chosen = graph.canonical_kind.among(kinds) & graph.phase.among([phase])
    return int(graph.flops[chosen].sum())


def trained(module, updates: int, feeds: dict[str, np.ndarray], **sizes: int) -> list[float]:
    """The losses of a small build, fed the same batch at each step."""
    with tf.Graph().as_default() as built, v1.Session() as session:
        v1.set_random_seed(0)
        loss, train = module.build(**sizes)
        session.run(v1.global_variables_initializer())
        feed = {f"input/{name}:0": value for name, value in feeds.items()}
        assert set(feed) == {f"{op.name}:0" for op in built.get_operations() if op.type == "Placeholder"}
        return [float(session.run([loss, train], feed)[0]) for _ in range(updates)]


def test_every_op_but_the_scalars_of_the_optimiser_has_a_block(workload):
    without = np.flatnonzero(workload.block == NONE)
    assert all(workload.op_names[op].startswith("adam/") or workload.op_names[op] == "train" for op in without)
    assert workload.flops[without].sum() < 10
    assert not workload.uncounted


def test_layers_have_all_phases_and_variables_one_read(workload):
    kinds = np.array([workload.kind[op] for op in range(workload.num_ops)])
    for op in np.flatnonzero(workload.persistent_bytes):
        uses = kinds[workload.edge_dst[workload.edge_src == op]]
        assert (uses == "ReadVariableOp").sum() <= 1
    for block in range(workload.block.max() + 1):
        phases = {workload.phase[int(op)] for op in np.flatnonzero(workload.block == block)}
        assert phases == {"forward", "backward_data", "backward_weight", "update"}


def test_groups_stand_within_a_block(workload):
    for group in range(len(workload.colocation.values)):
        assert len(set(workload.block[workload.colocation.index == group].tolist())) == 1


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_rnnlm_has_the_flops_of_its_formula(layers):
    step = graph(f"rnnlm-{layers}")
    layer, softmax = 2 * 64 * (2 * 2048) * (4 * 2048), 2 * 64 * 2048 * 10_000
    assert product_flops(step, "forward") == product_flops(step, "backward_weight") == 40 * (layers * layer + softmax)
    assert product_flops(step, "backward_data") == 40 * (layers * layer + softmax)
    parameters = layers * (4096 * 8192 + 8192) + 10_000 * 2048 + 2048 * 10_000 + 10_000
    assert step.persistent_bytes.sum() == 3 * 4 * parameters + 2 * 4


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_rnnlm_has_a_block_a_layer_and_its_ends_with_the_first_and_the_last(layers):
    step = graph(f"rnnlm-{layers}")
    assert sorted(set(step.block.tolist())) == [NONE, *range(layers)]
    for scope, block in [("embedding", 0), ("softmax", layers - 1), *((f"lstm_{layer}", layer) for layer in range(layers))]:
        ops = step.layer.among([scope])
        assert set(step.block[ops].tolist()) == {block}
        assert sorted(set(step.time_step[ops].tolist())) == [NONE, *range(40)]


def test_nmt_has_the_flops_of_its_formula():
    step = graph("nmt-2")
    cell = 2 * 64 * 1024 * 4096  # a product with 1,024 inputs of a cell
    cells, attention, softmax = (2 + 2 + 3 + 2) * cell, 2 * 64 * 2048 * 1024, 2 * 64 * 1024 * 32_000
    keys = 2 * (64 * 40) * 1024 * 1024
    assert product_flops(step, "forward") == product_flops(step, "backward_weight") == 40 * (cells + attention + softmax) + keys


@pytest.mark.parametrize("name", ["rnnlm-2", "nmt-2"])
def test_a_batch_four_times_as_large_has_four_times_the_products_of_the_same_parameters(name):
    one, many = graph(name), graph(f"{name}-b256")
    assert many.persistent_bytes.sum() == one.persistent_bytes.sum()
    for phase in ("forward", "backward_weight", "backward_data"):
        assert product_flops(many, phase, ("matmul", "batch_matmul")) == 4 * product_flops(one, phase, ("matmul", "batch_matmul"))


def test_inception_has_the_parameters_and_the_flops_of_the_published_network():
    one, many = graph("inception-v3-b1"), graph("inception-v3-b32")
    trainable = one.persistent_bytes[one.phase.among(["forward"])].sum() / 4
    assert trainable == pytest.approx(27.16e6, rel=0.01)  # 23.8 million and 3.3 of the auxiliary head
    forward = many.flops[many.phase.among(["forward"])].sum() / 32
    assert forward == pytest.approx(2 * 5.72e9, rel=0.02)  # multiply-adds of an image
    assert (one.num_ops, one.num_edges) == (many.num_ops, many.num_edges)


def test_vgg_has_the_parameters_and_the_flops_of_the_published_network():
    step = graph("vgg-16")
    layers = [(9 * 3 * 64, 224), (9 * 64 * 64, 224), (9 * 64 * 128, 112), (9 * 128 * 128, 112), (9 * 128 * 256, 56),
              *2 * [(9 * 256 * 256, 56)], (9 * 256 * 512, 28), *2 * [(9 * 512 * 512, 28)], *3 * [(9 * 512 * 512, 14)],
              (7 * 7 * 512 * 4096, 1), (4096 * 4096, 1), (4096 * 1000, 1)]  # fmt: skip
    weights, outputs = sum(size for size, _ in layers), 64 * 2 + 128 * 2 + 256 * 3 + 512 * 6 + 4096 * 2 + 1000
    assert weights + outputs == 138_357_544  # 138 million in table 2 of the paper
    assert step.persistent_bytes.sum() == 2 * 4 * (weights + outputs)  # one slot each
    forward, first = 32 * 2 * sum(size * side**2 for size, side in layers), 32 * 2 * layers[0][0] * 224**2
    assert forward / 32 == pytest.approx(2 * 15.5e9, rel=0.01)
    found = {phase: product_flops(step, phase, PRODUCTS) for phase in ("forward", "backward_weight", "backward_data")}
    assert found == {"forward": forward, "backward_weight": forward, "backward_data": forward - first}


@pytest.mark.parametrize("name", rebuilt(WORKLOADS))
def test_rebuilding_gives_the_checksum_of_the_manifest(name):
    assert build_tensorflow.graph(name).sha256 == manifest.entry(name).sha256


def test_a_graph_built_twice_in_one_process_is_the_same():
    assert build_tensorflow.graph("vgg-16").sha256 == build_tensorflow.graph("vgg-16").sha256


def test_rnnlm_trains():
    tokens = np.array([[1, 2], [3, 1], [1, 1]], dtype=np.int32)
    losses = trained(tensorflow_rnnlm, 30, {"tokens": tokens, "targets": tokens[::-1]}, units=8, steps=3, batch=2, vocabulary=11)
    assert losses[-1] < losses[0] - 0.05


def test_nmt_trains():
    rows = np.array([[1, 2], [3, 1], [1, 1]], dtype=np.int32)
    feeds = {"source": rows, "inputs": rows, "targets": rows[::-1]}
    losses = trained(tensorflow_nmt, 30, feeds, units=8, steps=3, batch=2, vocabulary=11)
    assert losses[-1] < losses[0] - 0.05


def test_inception_trains():
    feeds = {"images": np.random.default_rng(0).random((2, 139, 139, 3), dtype=np.float32), "labels": np.array([1, 2], dtype=np.int32)}
    losses = trained(tensorflow_inception, 2, feeds, batch=2, size=139, classes=5)
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


@pytest.mark.parametrize(("module", "sizes"), [(tensorflow_resnet, {}), (tensorflow_nasnet, {"repeated": 1})])
def test_networks_of_convolutions_train(module, sizes):
    feeds = {"images": np.random.default_rng(0).random((2, 32, 32, 3), dtype=np.float32), "labels": np.array([1, 2], dtype=np.int32)}
    losses = trained(module, 4, feeds, batch=2, size=32, classes=5, **sizes)
    assert np.isfinite(losses).all() and min(losses[1:]) < losses[0]  # one step of this rate may overshoot


def test_vgg_trains_from_weights_that_keep_the_scale():
    generator = np.random.default_rng(0)
    with tf.Graph().as_default(), v1.Session() as session:
        loss, train = tensorflow_vgg.build(batch=2, size=32, dense=64, classes=5)
        session.run(v1.global_variables_initializer())
        for weight in v1.trainable_variables():
            scale = np.sqrt(2 / np.prod(weight.shape[:-1])) if len(weight.shape) > 1 else 0.0
            weight.load(scale * generator.normal(size=weight.shape), session)
        feed = {"input/images:0": generator.random((2, 32, 32, 3)), "input/labels:0": [1, 2]}
        losses = [float(session.run([loss, train], feed)[0]) for _ in range(5)]
    assert losses[-1] < losses[0] - 0.05


def test_sparse_adam_sums_repeated_rows_and_leaves_the_others():
    rows = np.array([2, 0, 2], dtype=np.int32)
    factor = np.array([[1.0], [10.0], [100.0]], dtype=np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", (4, 1), use_resource=True, initializer=v1.zeros_initializer())
        picked = tf.raw_ops.ResourceGather(resource=table.handle, indices=rows, dtype=tf.float32)
        train = minimize(tf.reduce_sum(picked * factor), [table])
        session.run(v1.global_variables_initializer())
        session.run(train)
        moved, first = session.run([table, "table_m/Read/ReadVariableOp:0"])
    np.testing.assert_allclose(first[:, 0], [(1 - BETA1) * 10, 0, (1 - BETA1) * 101, 0], rtol=1e-5)
    rate = RATE * np.sqrt(1 - BETA2) / (1 - BETA1)
    expected = -rate * (1 - BETA1) * 101 / (np.sqrt(1 - BETA2) * 101 + EPSILON)
    np.testing.assert_allclose(moved[:, 0], [expected, 0, expected, 0], rtol=1e-4)


def test_four_layers_make_the_larger_model():
    with tf.Graph().as_default() as built:
        loss, train = tensorflow_nmt.build(layers=4, units=8, steps=3, batch=2, vocabulary=11)
    step = read_step(built, [loss.name, train.name], "nmt-4", tensorflow_nmt.blocks(4))
    assert sorted(set(step.block.tolist())) == [NONE, 0, 1, 2, 3]
