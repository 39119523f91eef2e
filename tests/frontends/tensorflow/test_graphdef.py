"""GraphDef files as graphs: frozen networks and training graphs, binary and text, the same as the graph that was written."""

import resource
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from support.tensorflow_graphs import of, root
from support.tensorflow_models import MODELS
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from gnnplace.frontends.tensorflow import graphdef_child
from gnnplace.frontends.tensorflow.function import read_function
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.tensorflow.graphdef import read_graphdef

v1 = tf.compat.v1


def written(graph, folder, name="net.pb"):
    return tf.io.write_graph(graph, str(folder), name, as_text=name.endswith("txt"))


def training(spec):
    """A training graph and the names of its loss and its train op."""
    with tf.Graph().as_default() as graph:
        loss, train = spec.build()
    return graph, [loss.name, train.name]


@pytest.mark.parametrize("spec", MODELS, ids=lambda spec: spec.name)
def test_a_training_graph_is_the_same_from_a_file(spec, tmp_path):
    graph, fetches = training(spec)
    expected = read_step(graph, fetches, spec.name)
    for name in ("net.pb", "net.pbtxt"):
        assert graphdef_child.read(written(graph, tmp_path, name), {}, fetches, spec.name).sha256 == expected.sha256


def test_the_file_is_read_in_a_process_of_its_own(tmp_path):
    graph, fetches = training(MODELS[0])
    before = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_NOFILE)
    found = read_graphdef(written(graph, tmp_path, "branches.pb"), fetches=fetches)
    assert found.sha256 == read_step(graph, fetches, "branches").sha256
    assert before == (resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_NOFILE))


def test_that_process_opens_no_other_file(tmp_path):
    graph, fetches = training(MODELS[1])
    path = written(graph, tmp_path)
    code = (
        "import sys; from gnnplace.frontends.tensorflow import graphdef_child as child\n"
        "child._import_all()\n"
        f"print(child.read({path!r}, {{}}, {fetches!r}, 'net', child._open_no_more).num_ops)\n"
        f"open({path!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert int(done.stdout) == read_step(graph, fetches, "net").num_ops and "Too many open files" in done.stderr


@pytest.fixture
def frozen(tmp_path):
    """[open, 8] @ [8, 4] + [4] -> softmax, and its three largest values, frozen from a function that calls another."""
    kernel, bias = tf.Variable(tf.ones((8, 4)), name="kernel"), tf.Variable(tf.ones(4), name="bias")

    @tf.function
    def dense(x):
        return tf.nn.bias_add(tf.matmul(x, kernel), bias)

    @tf.function
    def net(x):
        with tf.name_scope("top"):
            return tf.nn.top_k(tf.nn.softmax(dense(x)), 3)

    return net, convert_variables_to_constants_v2(net.get_concrete_function(tf.TensorSpec((None, 8)))).graph


def test_weights_of_a_frozen_graph_are_variables(frozen, tmp_path):
    net, graph = frozen
    found = graphdef_child.read(written(graph, tmp_path), {"x[0]": 5}, [], "net")
    kept = read_function(net, tf.TensorSpec((5, 8)), name="net")
    assert found.persistent_bytes.sum() == kept.persistent_bytes.sum() == (8 * 4 + 4) * 4
    assert found.flops.sum() == kept.flops.sum() == 2 * 5 * 8 * 4 + 5 * 4 + 5 * 5 * 4 + 5 * 4  # product, bias, softmax, top k
    name = next(name for name, kind in of(found, "kind").items() if kind == "ReadVariableOp")
    assert root(found, name) == f"{name}/variable" == of(found, "colocation")[name]
    assert found.output_is_result.sum() == 2  # values and indices, though nobody named them


def test_a_graph_of_calls_is_inlined(tmp_path):
    @tf.function
    def square(x):
        return tf.matmul(x, x, transpose_b=True)

    net = tf.function(lambda x: square(square(x)))
    definition = net.get_concrete_function(tf.TensorSpec((5, 8))).graph.as_graph_def()
    assert any("Call" in node.op for node in definition.node)
    found = graphdef_child.read(written(definition, tmp_path), {}, [], "net")
    assert found.flops.sum() == 2 * (5 * 5 * 8 + 5 * 5 * 5)
    assert found.sha256 == read_function(net, tf.TensorSpec((5, 8)), name="net").sha256


def test_fetches_are_tensors_and_ops(tmp_path):
    graph, (loss, train) = training(MODELS[0])
    path = written(graph, tmp_path)
    forward = graphdef_child.read(path, {}, [loss], "net")
    assert set(forward.phase.values) == {"forward"} and forward.output_is_result.sum() == 1
    both = graphdef_child.read(path, {}, [loss, train], "net")
    assert "update" in both.phase.values and both.num_ops > forward.num_ops


def test_without_fetches_a_training_graph_is_ambiguous(tmp_path):
    graph, (loss, train) = training(MODELS[0])
    with pytest.raises(ValueError) as error:
        graphdef_child.read(written(graph, tmp_path), {}, [], "net")
    message = "graph: 24 ops write variables, so it is ambiguous what one step does; say what the step computes by --fetch NAME"
    assert str(error.value).startswith(message) and f"it ends in {loss}, {train}" in str(error.value)


def test_dimensions_that_are_open_are_named_with_the_option(frozen, tmp_path):
    path = written(frozen[1], tmp_path)
    with pytest.raises(ValueError, match=r"op 'x' \(Placeholder\): \[-1, 8\] leaves dimension 0 open; give it by --dim 'x\[0\]=SIZE'"):
        graphdef_child.read(path, {}, [], "net")
    with pytest.raises(ValueError, match=r"dims: 'y' is no open dimension of a placeholder; there are: x\[0\]"):
        graphdef_child.read(path, {"x[0]": 5, "y": 2}, [], "net")
    with pytest.raises(ValueError, match="dims: 'x': 0 is no size between 1 and"):
        read_graphdef(path, {"x": 0})
