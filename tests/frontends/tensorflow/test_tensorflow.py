"""The TensorFlow front-end on small steps whose flops, bytes, roles and groups are worked out by hand."""

import math

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from support.tensorflow_graphs import descend, inputs, mlp, of, output_bytes, read, root, variable
from tensorflow.python.framework import ops
from tensorflow.python.profiler.internal import flops_registry  # noqa: F401 (fills the registry)

from gnnplace.frontends.tensorflow.costs import UPDATES
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.tensorflow.kinds import CANONICAL, canonical_kind
from gnnplace.graph import NONE

v1 = tf.compat.v1


def test_flops_of_an_mlp_step_equal_the_formula():
    graph = read(mlp)
    matmuls = 2 * 8 * (16 * 32 * 2 + 32 * 4 * 3)  # no gradient of the input
    relu, cross_entropy, mean = 2 * 8 * 32, 8 * 8 * 4 + 8 * 4, 8  # the kernel and its gradient (the mean's is a constant)
    updates = 2 * (16 * 32 + 32 * 4)
    assert graph.flops[graph.canonical_kind.among(["matmul"])].sum() == matmuls
    assert graph.flops.sum() == matmuls + relu + cross_entropy + mean + updates


def test_phases_of_an_mlp_step():
    phase = of(read(mlp), "phase")
    assert phase["first/MatMul"] == phase["first/kernel"] == phase["labels"] == "forward"
    assert phase["gradients/second/MatMul_grad/MatMul"] == phase["gradients/first/Relu_grad/ReluGrad"] == "backward_data"
    assert phase["gradients/second/MatMul_grad/MatMul_1"] == phase["gradients/first/MatMul_grad/MatMul_1"] == "backward_weight"
    assert phase["ResourceApplyGradientDescent"] == phase["train"] == phase["ResourceApplyGradientDescent/alpha"] == "update"


def test_layers_and_blocks_of_an_mlp_step():
    graph = read(mlp, {"first": 0, "sec": 7, "second": 1})
    layer, block = of(graph, "layer"), of(graph, "block")
    for name in ("first/kernel", "first/MatMul", "gradients/first/MatMul_grad/MatMul_1", "ResourceApplyGradientDescent"):
        assert (layer[name], block[name]) == ("first", 0)
    for name in ("second/kernel", "gradients/second/MatMul_grad/MatMul", "ResourceApplyGradientDescent_1"):
        assert (layer[name], block[name]) == ("second", 1)
    assert (layer["x"], block["x"]) == (None, NONE)


def test_a_variable_owns_its_memory_and_its_read_shares_it():
    graph = read(mlp)
    assert of(graph, "persistent_bytes")["first/kernel"] == 16 * 32 * 4
    assert graph.persistent_bytes.sum() == (16 * 32 + 32 * 4) * 4
    assert output_bytes(graph, "first/kernel") == [0] and output_bytes(graph, "first/ReadVariableOp") == [16 * 32 * 4]
    assert root(graph, "first/ReadVariableOp") == "first/kernel"
    assert not of(graph, "kernel")["first/kernel"] and not of(graph, "kernel")["first/ReadVariableOp"]


def test_what_uses_a_resource_stands_with_it():
    colocation = of(read(mlp), "colocation")
    assert [name for name, group in colocation.items() if group == "first/kernel"] == [
        "first/kernel", "first/ReadVariableOp", "ResourceApplyGradientDescent",
    ]  # fmt: skip
    assert colocation["first/MatMul"] is None


def test_fetched_tensors_are_results_and_what_nobody_needs_is_gone():
    def build():
        x = v1.placeholder(tf.float32, (2, 3), "x")
        tf.exp(x, name="unused")
        return [tf.reduce_sum(tf.square(x, name="square"), name="loss")]

    graph = read(build)
    assert "unused" not in graph.op_names
    assert [graph.op_names[op] for op in graph.output_op[graph.output_is_result]] == ["loss"]


def test_convolution_and_both_gradients_cost_the_same():
    def build():
        x, kernel = v1.placeholder(tf.float32, (2, 8, 8, 3), "x"), variable("kernel", 3, 3, 3, 5)
        y = tf.nn.conv2d(x, kernel, 2, "SAME", name="conv")
        return [y, *v1.gradients(tf.reduce_sum(y), [x, kernel])]

    graph = read(build)
    flops = {graph.kind[i]: graph.flops[i] for i in range(graph.num_ops) if "Conv2D" in graph.kind[i]}
    assert flops == dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), 2 * (2 * 4 * 4 * 5) * (3 * 3 * 3))


@pytest.mark.parametrize(("transposed", "shape"), [(False, (7, 2, 3)), (True, (7, 3, 2))])
def test_batched_products_count_the_contracted_dimension(transposed, shape):
    def build():
        a, b = v1.placeholder(tf.float32, shape), v1.placeholder(tf.float32, (7, 3, 5))
        return [tf.matmul(a, b, transpose_a=transposed, name="product")]

    assert of(read(build), "flops")["product"] == 2 * 7 * 2 * 5 * 3


def test_pooling_normalization_and_reduction_count_by_their_rules():
    def build():
        x = v1.placeholder(tf.float32, (2, 4, 4, 3), "x")
        pooled = tf.nn.max_pool2d(x, 2, 2, "VALID", name="pool")
        normal = tf.raw_ops.FusedBatchNormV3(x=x, scale=[1.0] * 3, offset=[0.0] * 3, mean=[], variance=[], name="normal").y
        largest = [tf.reduce_max(x, name="max"), *tf.math.top_k(x, 2, name="top")]
        dilated = tf.nn.dilation2d(x, np.zeros((2, 2, 3), np.float32), [1] * 4, "VALID", "NHWC", [1] * 4, name="dilated")
        return [pooled, normal, dilated, tf.add_n([x, x, x], name="sum"), *largest, tf.nn.softmax(x, name="softmax")]

    flops = of(read(build), "flops")
    assert flops["pool"] == (2 * 2 * 2 * 3) * 4
    assert flops["normal"] == 8 * 96
    assert flops["dilated"] == (2 * 3 * 3 * 3) * 4 * 2
    assert (flops["sum"], flops["max"], flops["top"], flops["softmax"]) == (2 * 96, 96, 96, 5 * 96)


@pytest.mark.parametrize(
    ("method", "size", "neighbours"),
    [
        ("bilinear", (8, 12), 2 * 2), ("bicubic", (8, 6), 4), ("area", (2, 6), 2), ("area", (2, 4), 2 * 2),
        ("lanczos3", (8, 12), 6 * 6), ("mitchellcubic", (3, 6), 6), ("gaussian", (4, 12), 3),
    ],
)  # fmt: skip
def test_an_interpolation_counts_its_neighbours(method, size, neighbours):
    def build():
        return [tf.image.resize(v1.placeholder(tf.float32, (2, 4, 6, 3), "x"), size, method, antialias=True, name="y")]

    step = read(build)
    assert not step.uncounted and step.flops.sum() == 2 * neighbours * 2 * 3 * math.prod(size)


@pytest.mark.parametrize(
    ("method", "forward", "backward"),
    [("bilinear", 2 * 4, 2 * 4), ("bicubic", 2 * 16, 2 * 16), ("lanczos5", 2 * 100, 2 * 100), ("nearest", 0, 1)],
)
def test_the_gradient_of_an_interpolation_does_its_arithmetic(method, forward, backward):
    def build():
        image = v1.placeholder(tf.float32, (2, 4, 6, 3), "x")
        resized = tf.image.resize(image, (8, 12), method)
        return v1.gradients(resized, image, grad_ys=resized)

    step = read(build)
    found = {
        step.kind.values[kind].endswith("Grad"): flops for kind, flops in zip(step.kind.index, step.flops.tolist(), strict=True) if flops
    }
    assert not step.uncounted
    assert (found.get(False, 0), found[True]) == (forward * 2 * 8 * 12 * 3, backward * 2 * 8 * 12 * 3)


def embedded() -> list:
    tokens = v1.placeholder(tf.int32, (6,), "tokens")
    table = variable("table", 1000, 4)
    rows = [tf.raw_ops.ResourceGather(resource=table.handle, indices=tokens[3 * i : 3 * i + 3], dtype=tf.float32) for i in range(2)]
    gradient = v1.gradients(tf.add_n([tf.reduce_sum(tf.square(r)) for r in rows]), table)[0]
    return [tf.raw_ops.ResourceScatterSub(resource=table.handle, indices=gradient.indices, updates=gradient.values, name="update")]


def test_an_embedding_touches_its_rows_alone_and_its_gradient_stays_sparse():
    graph = read(embedded)
    accessed = of(graph, "bytes_accessed")
    assert accessed["ResourceGather"] == 2 * (3 * 4 * 4) + 3 * 4  # rows read, rows written, three indices
    assert accessed["update"] == 3 * (6 * 4 * 4)  # rows read, summands read, rows written
    assert graph.output_bytes.max() == 6 * 4 * 4
    assert of(graph, "persistent_bytes")["table"] == 1000 * 4 * 4
    assert of(graph, "phase")["gradients/ResourceGather_grad/Reshape"] == "backward_weight"
    assert of(graph, "colocation")["ResourceGather_1"] == of(graph, "colocation")["update"] == "table"


def test_an_optimiser_kernel_reads_and_writes_variable_slots_and_gradient():
    def build():
        x, weight = v1.placeholder(tf.float32, (2, 3), "x"), variable("layer/weight", 3, 5)
        optimizer = v1.train.AdamOptimizer()
        return [optimizer.minimize(tf.reduce_sum(tf.matmul(x, weight)), var_list=[weight], name="train")]

    graph = read(build)
    apply = next(name for name, kind in of(graph, "kind").items() if kind == "ResourceApplyAdam")
    assert of(graph, "bytes_accessed")[apply] == 7 * 15 * 4 and of(graph, "flops")[apply] == 12 * 15
    assert graph.persistent_bytes.sum() == 3 * 15 * 4 + 2 * 4  # weight, two slots, two powers of beta
    for slot in ("layer/weight/Adam", "layer/weight/Adam_1", apply):
        assert (of(graph, "layer")[slot], of(graph, "phase")[slot], of(graph, "colocation")[slot]) == ("layer", "update", "layer/weight")


def test_many_reads_of_a_variable_are_one():
    def build():
        x, weight = v1.placeholder(tf.float32, (4, 4), "x"), variable("weight", 4, 4)
        for _ in range(3):
            x = tf.matmul(x, weight)  # each use reads
        return [tf.identity(x, name="y")]

    graph = read(build)
    assert list(of(graph, "kind").values()).count("ReadVariableOp") == 1
    assert all("MatMul/ReadVariableOp" in inputs(graph, product) for product in ("MatMul", "MatMul_1", "MatMul_2"))


def test_a_read_after_a_write_is_another_read_and_waits_for_it():
    def build():
        counter = variable("counter")
        before = counter.value()
        write = tf.raw_ops.AssignAddVariableOp(resource=counter.handle, value=1.0, name="write")
        with tf.control_dependencies([before.op, write]):
            after = tf.raw_ops.ReadVariableOp(resource=counter.handle, dtype=tf.float32, name="after")
        return [before, after]

    graph = read(build)
    assert list(of(graph, "kind").values()).count("ReadVariableOp") == 2
    assert inputs(graph, "after", control=True) == ["ReadVariableOp", "write"]


def test_views_share_the_buffer_of_their_input_and_launch_nothing():
    def build():
        x, y = tf.exp(v1.placeholder(tf.float32, (2, 3)), name="x"), tf.exp(v1.placeholder(tf.float32, (4,)), name="y")
        view = tf.expand_dims(tf.stop_gradient(tf.identity(tf.reshape(x, (3, 2)))), 0)
        return [tf.squeeze(view, name="view"), *tf.raw_ops.IdentityN(input=[x, y], name="both")]

    graph = read(build)
    assert root(graph, "view") == root(graph, "both") == "x" and root(graph, "both", 1) == "y"
    aliases = graph.output_op[graph.output_alias != NONE]
    assert len(aliases) == 7 and not graph.kernel[aliases].any()


def test_shapes_are_constants_and_small_arithmetic_on_them_is_free():
    def build():
        x = v1.placeholder(tf.float32, (6, 4), "x")
        rows = tf.raw_ops.Shape(input=x, name="shape")[0]
        return [tf.tile(x, [tf.multiply(rows, 1, name="times") // 6, 2], name="y")]

    graph = read(build)
    kernel, kind = of(graph, "kernel"), of(graph, "canonical_kind")
    assert inputs(graph, "shape") == [] and inputs(graph, "shape", control=True) == ["x"]
    assert not kernel["shape"] and not kernel["times"] and kind["times"] == "shape" and of(graph, "flops")["times"] == 0
    assert kernel["y"]


def test_a_kind_without_a_rule_is_counted_by_its_bytes_and_named():
    def build():
        return [tf.linalg.cholesky(v1.placeholder(tf.float32, (5, 5)), name="factor")]

    graph = read(build)
    factor = graph.op_names.index("factor")
    assert graph.uncounted == {"Cholesky": 1}
    assert graph.kernel[factor] and graph.canonical_kind[factor] == "other"
    assert graph.effective_bytes_accessed[factor] == 2 * 5 * 5 * 4


def test_an_unknown_optimiser_is_an_update_all_the_same():
    def build():
        weight = variable("weight", 3)
        apply = tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, alpha=0.1, delta=weight.value(), name="known")
        sign = tf.raw_ops.ResourceApplyPowerSign
        slot = variable("slot", 3)
        with tf.control_dependencies([apply]):
            return [
                sign(var=weight.handle, m=slot.handle, lr=0.1, logbase=1.0, sign_decay=1.0, beta=0.9, grad=weight.value(), name="unknown")
            ]

    graph = read(build)
    assert graph.uncounted == {"ResourceApplyPowerSign": 1}
    assert of(graph, "phase")["unknown"] == "update" and of(graph, "colocation")["slot"] == "weight"


def test_every_kind_of_the_tables_exists():
    assert [kind for kind in CANONICAL if not hasattr(tf.raw_ops, kind)] == []
    assert {kind for kind, canonical in CANONICAL.items() if canonical == "update"} == set(UPDATES)


def test_every_kind_that_tensorflows_own_profiler_counts_has_a_rule():
    """Kinds that write variables of TensorFlow 1 are left out: such steps are refused."""
    kinds = {entry.partition(",")[0] for entry in ops._stats_registry.list()}
    assert len(kinds) > 40
    moves = {"concat", "split", "slice", "transpose", "reshape", "gather", "fill", "other"}
    assert {kind for kind in kinds if canonical_kind(kind) in moves} <= {"AssignAdd", "AssignSub"}


def test_known_steps_have_no_unknown_kinds():
    assert not read(mlp).uncounted and not read(embedded).uncounted


def test_control_edges_are_kept():
    def build():
        x = tf.exp(v1.placeholder(tf.float32, (2,)), name="x")
        with tf.control_dependencies([x]):
            return [tf.no_op(name="barrier")]

    assert inputs(read(build), "barrier", control=True) == ["x"]


def test_strings_stay_on_cpus():
    def build():
        return [tf.strings.to_number(tf.strings.as_string(v1.placeholder(tf.float32, (3,)), name="text"), name="number")]

    allowed = of(read(build), "allowed")
    assert allowed["text"] == allowed["number"] == "cpu" and allowed["Placeholder"] is None


def test_time_steps_and_layers_of_an_unrolled_recurrence():
    def build():
        kernel = variable("cell/kernel", 4, 4)
        with tf.name_scope("cell/"):
            weight, state = kernel.value(), v1.placeholder(tf.float32, (2, 4), "start")
        for time in range(3):
            with tf.name_scope(f"cell/step_{time}/"):
                state = tf.tanh(tf.matmul(state, weight))
        with tf.name_scope("loss/"):
            loss = tf.reduce_sum(state)
        return [loss, descend(loss, [kernel])]

    graph = read(build)
    layer, time, phase = of(graph, "layer"), of(graph, "time_step"), of(graph, "phase")
    assert [time[f"cell/step_{t}/MatMul"] for t in range(3)] == [0, 1, 2]
    assert time["gradients/cell/step_2/MatMul_grad/MatMul_1"] == 2 and time["cell/ReadVariableOp"] == NONE
    assert phase["gradients/cell/step_1/MatMul_grad/MatMul"] == "backward_data"
    total = next(name for name, kind in of(graph, "kind").items() if kind == "AddN")
    assert (layer[total], time[total], phase[total]) == ("cell", NONE, "backward_weight")
    assert layer["ResourceApplyGradientDescent"] == layer["gradients/cell/step_0/Tanh_grad/TanhGrad"] == "cell"
    assert layer["loss/Sum"] == layer["gradients/loss/Sum_grad/Tile"] == "loss"


def test_gradients_of_a_tape_are_recognised():
    def build():
        x, weight = v1.placeholder(tf.float32, (2, 3), "x"), variable("layer/weight", 3, 5)
        with tf.GradientTape() as tape, tf.name_scope("layer/"):
            loss = tf.reduce_sum(tf.nn.relu(tf.matmul(x, weight)))
        gradient = tape.gradient(loss, weight)
        return [tf.raw_ops.ResourceApplyGradientDescent(var=weight.handle, alpha=0.1, delta=gradient, name="update")]

    graph = read(build)
    tape = [name for name in graph.op_names if name.startswith("gradient_tape/")]
    phase, layer = of(graph, "phase"), of(graph, "layer")
    assert {phase[name] for name in tape} == {"backward_data", "backward_weight"}
    assert phase[next(name for name in tape if of(graph, "kind")[name] == "MatMul")] == "backward_weight"
    assert {layer[name] for name in tape if of(graph, "kernel")[name]} == {"layer"}


def test_a_graph_and_its_definition_give_the_same():
    with tf.Graph().as_default() as graph:
        names = [fetch.name for fetch in mlp()]
    first, second = read_step(graph, names, "step"), read_step(graph.as_graph_def(), names, "step")
    assert first.sha256 == second.sha256


def test_costs_are_at_least_the_compulsory_traffic():
    graph = read(mlp)
    product = graph.op_names.index("first/MatMul")
    assert graph.effective_bytes_accessed[product] == 4 * (8 * 16 + 16 * 32 + 8 * 32)
    assert np.all(graph.bytes_accessed[graph.canonical_kind.among(["update"])] > 0)


def _loop():
    return [tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])[0]]


def _unknown_shape():
    return [tf.exp(v1.placeholder(tf.float32, (None, 3), "x"))]


def _call():
    return [tf.function(tf.exp)(v1.placeholder(tf.float32, (3,)))]


def _captured():
    handle = v1.placeholder(tf.resource, (), "handle")
    return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)]


def _reference():
    return [v1.get_variable("weight", (3,), use_resource=False).value()]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (_loop, "is a loop; unroll it"),
        (_unknown_shape, r"'x:0' of a Placeholder: its shape \(None, 3\) is not static"),
        (_call, "must be flat"),
        (_captured, "'handle': a captured variable"),
        (_reference, "'weight': a reference variable"),
    ],
)
def test_what_has_no_static_flat_graph_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        read(build)


def test_an_unknown_fetch_is_refused_by_name():
    with pytest.raises(ValueError, match="fetches: 'los:0' names no tensor or op"):
        read_step(tf.Graph(), ["los:0"], "step")
