"""Control flow that shapes and constants decide: the flat graph computes, bit for bit, what the file computes."""

import numpy as np
import pytest
from support.onnx_files import (
    FLOAT,
    INT64,
    arrays,
    check_same,
    constant,
    flat,
    helper,
    kinds,
    model,
    node,
    onnx,
    saved,
    value,
    weight,
)

from gnnplace.frontends.onnx import child, replacement, resolving
from gnnplace.frontends.onnx.read import read_onnx

BOOL = onnx.TensorProto.BOOL


def graph(nodes, inputs, outputs, initializers=(), name="body"):
    return helper.make_graph(list(nodes), name, list(inputs), [value(*output) for output in outputs], list(initializers))


def recurrent(**attributes):
    """A Scan that keeps a sum and a product with a weight, and returns a value of each turn."""
    body = graph(
        [node("MatMul", "row w", "part", name="product"), node("Add", "sum part", "next"), node("Tanh", "next", "out")],
        [value("sum", [3]), value("row", [4])], [("next", [3]), ("out", [3])], [weight_of("w", 4, 3)],
    )  # fmt: skip
    return node("Scan", "start x", "last y", name="rnn/scan", body=body, num_scan_inputs=1, **attributes)


def weight_of(name, *shape):
    return onnx.numpy_helper.from_array(np.random.default_rng(1).standard_normal(shape).astype(np.float32), name)


@pytest.mark.parametrize("opset", [9, 12, 17, 21])
def test_a_scan_takes_as_many_turns_as_its_input_has_slices(tmp_path, opset):
    built = model([recurrent()], [value("start", [3]), value("x", [5, 4])], ["last", "y"], opset=opset)
    built.graph.output[0].CopyFrom(value("last", [3]))
    built.graph.output[1].CopyFrom(value("y", [5, 3]))
    read = check_same(tmp_path, built, **arrays(start=[3], x=[5, 4]))
    products = [name for name, kind in zip(read.op_names, kinds(read), strict=True) if kind == "MatMul"]
    assert products == [f"rnn/scan/turn_{turn}/product" for turn in range(5)]
    assert read.flops[read.kind.among(["MatMul"])].tolist() == [2 * 4 * 3] * 5
    assert read.persistent_bytes.sum() == 4 * 4 * 3  # one weight, however many turns
    assert read.layer[read.op_names.index(products[2])] == "rnn/scan/turn_2"


@pytest.mark.parametrize("axis, output_axis", [(0, 1), (1, 0), (-1, -1)])
@pytest.mark.parametrize("backwards, prepended", [(0, 1), (1, 0), (1, 1)])
def test_a_scan_along_other_axes_and_backwards(tmp_path, axis, output_axis, backwards, prepended):
    shape = [5, 4] if axis == 0 else [4, 5]
    scan = recurrent(
        scan_input_axes=[axis], scan_output_axes=[output_axis], scan_input_directions=[backwards],
        scan_output_directions=[prepended],
    )  # fmt: skip
    outputs = [value("last", [3]), value("y", [5, 3] if output_axis == 0 else [3, 5])]
    check_same(tmp_path, model([scan], [value("start", [3]), value("x", shape)], outputs), **arrays(start=[3], x=shape))


def test_a_scan_of_several_states_inputs_and_outputs_that_reads_the_graph_around_it(tmp_path):
    body = graph(
        [node("Mul", "p q", "pq"), node("Add", "pq outside", "b_next"), node("Identity", "b", "a_next"), node("Identity", "a", "a_out")],
        [value(name, [2]) for name in ("a", "b", "p", "q")], [("a_next", [2]), ("b_next", [2]), ("pq", [2]), ("a_out", [2])],
    )  # fmt: skip
    scan = node("Scan", "s t x y", "u v w z", name="scan", body=body, num_scan_inputs=2)
    outputs = [value("u", [2]), value("v", [2]), value("w", [3, 2]), value("z", [3, 2])]
    inputs = {"s": [2], "t": [2], "x": [3, 2], "y": [3, 2], "k": [2]}
    built = model([node("Neg", "k", "outside"), scan], [value(*item) for item in inputs.items()], outputs)
    check_same(tmp_path, built, **arrays(**inputs))


def test_a_scan_of_the_first_version_scans_each_sample_by_itself(tmp_path):
    body = graph([node("Add", "sum row", "next"), node("Relu", "next", "out")],
                 [value("sum", [2]), value("row", [2])], [("next", [2]), ("out", [2])])  # fmt: skip
    scan = node("Scan", "- start x", "last y", name="scan", body=body, num_scan_inputs=1, directions=[1])
    outputs = [value("last", [3, 2]), value("y", [3, 4, 2])]
    built = model([scan], [value("start", [3, 2]), value("x", [3, 4, 2])], outputs, opset=8)
    read = check_same(tmp_path, built, **arrays(start=[3, 2], x=[3, 4, 2]))
    assert kinds(read).count("Add") == 3 * 4 and "scan/sample_2/turn_3/Add" in read.op_names


@pytest.mark.parametrize("chosen, kind", [(True, "Relu"), (False, "Tanh")])
@pytest.mark.parametrize("where", ["initializer", "node", "shape"])
def test_an_if_of_a_constant_is_its_branch(tmp_path, chosen, kind, where):
    branches = {
        f"{name}_branch": graph([node(op, "x", op)], [], [(op, [4])], name=name) for name, op in (("then", "Relu"), ("else", "Tanh"))
    }
    condition = {
        "initializer": ([], [constant("c", chosen, BOOL)]),
        "node": ([node("Constant", "", "c", value=constant("", chosen, BOOL))], []),
        "shape": ([node("Size", "x", "n"), node("Equal", "n four", "c")], [constant("four", 4 if chosen else 5)]),
    }[where]
    built = model([*condition[0], node("If", "c", "y", name="choice", **branches)], [value("x", [4])], [value("y", [4])], condition[1])
    read = check_same(tmp_path, built, **arrays(x=[4]))
    names = [name for name, op in zip(read.op_names, kinds(read), strict=True) if op in ("Relu", "Tanh", "If")]
    assert names == [f"choice/{'then' if chosen else 'else'}_branch/{kind}"]


def test_the_weights_of_a_branch_that_is_not_taken_are_no_weights(tmp_path):
    branches = {
        f"{name}_branch": graph([node("Mul", f"x {name}_w", "p")], [], [("p", [40])], [weight(f"{name}_w", [size])], name=name)
        for name, size in (("then", 40), ("else", 40))
    }
    built = model([node("If", "c", "y", **branches)], [value("x", [40])], [value("y", [40])], [constant("c", True, BOOL)])
    assert check_same(tmp_path, built, **arrays(x=[40])).persistent_bytes.sum() == 160


def test_a_branch_that_passes_on_what_it_does_not_compute(tmp_path):
    """ONNX Runtime takes no such outputs; ONNX's reference does."""
    branch = graph([node("Neg", "x", "n")], [], [("x", [4]), ("n", [4]), ("n", [4]), ("k", [2])], [weight_of("k", 2)])
    outputs = [value("a", [4]), value("b", [4]), value("d", [4]), value("e", [2])]
    choice = node("If", "c", "a b d e", then_branch=branch, else_branch=branch)
    path = saved(tmp_path, model([choice], [value("x", [4])], outputs, [constant("c", True, BOOL)]))
    expected, results = (
        pytest.importorskip("onnx.reference").ReferenceEvaluator(built).run(None, arrays(x=[4])) for built in (onnx.load(path), flat(path))
    )
    for array, result in zip(expected, results, strict=True):
        np.testing.assert_array_equal(result, array)


def loop(nodes, outputs, states=(("state", [4]),), condition="on", inputs="count on x", results="y"):
    declared = [value("number", [], INT64), value("go", [], BOOL), *(value(*state) for state in states)]
    body = graph(nodes, declared, [(condition, [], BOOL), *outputs])
    return node("Loop", inputs, results, name="loop", body=body)


def test_a_loop_of_a_constant_number_of_turns(tmp_path):
    nodes = [
        node("Identity", "go", "go_on"), node("Cast", "number", "n", to=FLOAT), node("Add", "state n", "next"), node("Neg", "next", "out")
    ]  # fmt: skip
    built = model(
        [loop(nodes, [("next", [4]), ("out", [4])], condition="go_on", results="y z")], [value("x", [4])],
        [value("y", [4]), value("z", [6, 4])], [constant("count", 6), constant("on", True, BOOL)],
    )  # fmt: skip
    read = check_same(tmp_path, built, **arrays(x=[4]))
    assert kinds(read).count("Add") == 6 and "loop/turn_5/Add" in read.op_names
    assert not any("go_on" in name for name in read.op_names)  # nothing computes what is known


def test_a_loop_ends_by_a_condition_that_is_computed_from_constants(tmp_path):
    nodes = [
        node("Mul", "level two", "doubled"), node("Less", "doubled bound", "more"), node("Add", "state state", "next"),
    ]  # fmt: skip
    built = model(
        [loop(nodes, [("next", [4]), ("doubled", [], INT64)], (("state", [4]), ("level", [], INT64)), "more", "- - x one", "y z")],
        [value("x", [4])], [value("y", [4]), value("z", [], INT64)], [constant("one", 1), constant("two", 2), constant("bound", 20)],
    )  # fmt: skip
    assert kinds(check_same(tmp_path, built, **arrays(x=[4]))).count("Add") == 5  # 2, 4, 8, 16, 32


@pytest.mark.parametrize("count, on", [(0, True), (3, False)])
def test_a_loop_of_no_turns_passes_its_states_on(tmp_path, count, on):
    nodes = [node("Identity", "go", "go_on"), node("Neg", "state", "next")]
    built = model(
        [loop(nodes, [("next", [4])], condition="go_on")],
        [value("x", [4])],
        [value("y", [4])],
        [constant("count", count), constant("on", on, BOOL)],
    )
    assert "Neg" not in kinds(check_same(tmp_path, built, **arrays(x=[4])))


def test_a_scan_in_a_branch_in_a_loop(tmp_path):
    """The branch depends on the number of the turn; values of all graphs are read from within."""
    inner = graph([node("Add", "sum row", "s"), node("Mul", "s w", "out")], [value("sum", [4]), value("row", [4])],
                  [("s", [4]), ("out", [4])], name="scan")  # fmt: skip
    then = graph([node("Scan", "state m", "p q", name="scan", body=inner, num_scan_inputs=1)], [], [("p", [4])], name="then")
    other = graph([node("Neg", "state", "p")], [], [("p", [4])], name="else")
    nodes = [
        node("Constant", "", "w", value=weight_of("", 4)), node("Less", "number two", "early"), node("Identity", "go", "go_on"),
        node("If", "early", "next", name="choice", then_branch=then, else_branch=other),
    ]  # fmt: skip
    built = model(
        [loop(nodes, [("next", [4])], condition="go_on")], [value("x", [4]), value("m", [3, 4])], [value("y", [4])],
        [constant("count", 3), constant("on", True, BOOL), constant("two", 2)],
    )  # fmt: skip
    read = check_same(tmp_path, built, **arrays(x=[4], m=[3, 4]))
    assert kinds(read).count("Add") == 2 * 3 and kinds(read).count("Neg") == 1
    assert "loop/turn_1/choice/then_branch/scan/turn_2/Add" in read.op_names


def test_control_flow_in_a_function(tmp_path):
    branch = graph([node("Relu", "a", "p")], [], [("p", [4])], name="then")
    body = [node("Constant", "", "c", value=constant("", True, BOOL)), node("If", "c", "b", then_branch=branch, else_branch=branch)]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, [helper.make_opsetid("", 21)])
    built = model([node("F", "x", "y", domain="mine")], [value("x", [4])], [value("y", [4])], functions=[function])
    assert kinds(check_same(tmp_path, built, **arrays(x=[4]))).count("Relu") == 1


def test_a_function_of_onnx_that_takes_a_subgraph_is_its_body(tmp_path):
    body = graph([node("Add", "a b", "sum")], [value("a", [4]), value("b", [4])], [("sum", [4])])
    nodes = [
        node("SequenceConstruct", "x y x", "s"),
        node("SequenceMap", "s y", "t", body=body),
        node("ConcatFromSequence", "t", "z", axis=0),
    ]
    built = model(nodes, [value("x", [4]), value("y", [4])], [value("z", [12])])
    assert kinds(check_same(tmp_path, built, **arrays(x=[4], y=[4]))).count("Add") == 3


UNDECIDED = {
    "a trip count": (
        model([loop([node("Neg", "state", "next")], [("next", [4])], condition="go")], [value("x", [4]), value("count", [], INT64)], ["y"],
              [constant("on", True, BOOL)]),
        "node 'loop' (Loop): its trip count 'count' depends on values, which are not known before the step",
    ),
    "a condition of values": (
        model([loop([node("Neg", "state", "next"), node("ReduceMax", "next", "m", keepdims=0), node("Less", "m one", "more")],
                    [("next", [4])], condition="more", inputs="count - x")],
              [value("x", [4])], ["y"], [constant("count", 4), constant("one", 1, FLOAT)]),
        "node 'loop' (Loop): whether it goes on: 'x' depends on values",
    ),
    "a loop without an end": (
        model([loop([node("Neg", "state", "next")], [("next", [4])], condition="go", inputs="- - x")], [value("x", [4])], ["y"]),
        "node 'loop' (Loop): never ends: its condition stays true, and it has no trip count",
    ),
    "many turns": (
        model([loop([node("Neg", "state", "next")], [("next", [4])], condition="go", inputs="count - x")], [value("x", [4])], ["y"],
              [constant("count", 2**40)]),
        f"node 'loop' (Loop): takes {2**40} turns or more; at most 10000 are unrolled",
    ),
    "a slice of values": (
        model([node("NonZero", "x", "n"), node("Scan", "n", "y", name="scan", num_scan_inputs=1,
                                               body=graph([node("Neg", "r", "o")], [value("r", None, INT64)], [("o", None, INT64)]))],
              [value("x", [4])], ["y"], opset=21),
        "node 'scan' (Scan): the shape of 'n' depends on values, which are not known before the step",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNDECIDED)
def test_what_values_decide_is_refused_with_that_reason(tmp_path, what):
    built, message = UNDECIDED[what]
    with pytest.raises(ValueError) as error:
        child.read(str(saved(tmp_path, built)), {})
    assert message in str(error.value) and "\n" not in str(error.value)


def test_many_nodes_are_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(replacement, "MAX_UNROLLED", 30)
    built = model([recurrent()], [value("start", [3]), value("x", [50, 4])], ["last", "y"])
    with pytest.raises(ValueError, match=r"'rnn/scan' \(Scan\): has more than 30 nodes in all its turns; that many are not unrolled"):
        child.read(str(saved(tmp_path, built)), {})


def test_loops_in_loops_are_refused_before_they_fill_the_memory(tmp_path, monkeypatch):
    """Each of 100 turns has a loop of 100 turns."""
    monkeypatch.setattr(resolving, "MAX_NODES", 500)
    inner = loop(
        [node("Identity", "go_in", "on_in"), node("Neg", "in", "out_in")], [("out_in", [4])], condition="on_in", inputs="count - state"
    )
    inner.attribute[0].g.input[0].name, inner.attribute[0].g.input[1].name, inner.attribute[0].g.input[2].name = "n_in", "go_in", "in"
    nodes = [node("Identity", "go", "go_on"), inner]
    built = model(
        [loop(nodes, [("y", [4])], condition="go_on", inputs="count - x", results="z")],
        [value("x", [4])],
        ["z"],
        [constant("count", 100)],
    )
    with pytest.raises(ValueError, match="graph: more than 500 nodes after unrolling, which is the most that a graph may have"):
        child.read(str(saved(tmp_path, built)), {})


def test_open_dimensions_decide_the_number_of_turns(tmp_path):
    path = saved(tmp_path, model([recurrent()], [value("start", [3]), value("x", ["steps", 4])], ["last", "y"]))
    assert kinds(read_onnx(path, {"steps": 7})).count("MatMul") == 7
