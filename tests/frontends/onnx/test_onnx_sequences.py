"""Sequences and optionals whose contents are known: the flat graph computes, bit for bit, what the file computes."""

import pytest
from support.onnx_files import INT64, arrays, check_same, constant, flat, helper, kinds, model, node, onnx, saved, value

from gnnplace.frontends.onnx import child
from gnnplace.frontends.onnx.read import read_onnx

XYZ = [value(name, [2, 3]) for name in "xyz"]
POSITIONS = [constant(name, number) for name, number in (("zero", 0), ("one", 1), ("last", -1), ("first", -3))]


def check(tmp_path, nodes, outputs, initializers=(), opset=21):
    built = model(nodes, XYZ, [value(*output) for output in outputs], [*POSITIONS, *initializers], opset=opset)
    return check_same(tmp_path, built, **arrays(x=[2, 3], y=[2, 3], z=[2, 3]))


@pytest.mark.parametrize("position", ["zero", "one", "last", "first"])
def test_a_tensor_of_a_sequence_is_a_view(tmp_path, position):
    read = check(
        tmp_path,
        [node("SequenceConstruct", "x y z", "s"), node("SequenceAt", f"s {position}", "t"), node("Neg", "t", "o")],
        [("o", [2, 3])],
    )
    assert kinds(read)[3 + len(POSITIONS) :] == ["Identity", "Neg"]


@pytest.mark.parametrize("position", ["", " zero", " last", " one"])
@pytest.mark.parametrize("removed", ["", " first", " one"])
def test_tensors_come_into_a_sequence_and_leave_it(tmp_path, position, removed):
    nodes = [
        node("SequenceConstruct", "x y z", "s"), node("SequenceErase", f"s{removed}", "t"), node("SequenceInsert", f"t x{position}", "u"),
        node("ConcatFromSequence", "u", "o", axis=1), node("SequenceLength", "u", "n"),
    ]  # fmt: skip
    assert "Concat" in kinds(check(tmp_path, nodes, [("o", [2, 9]), ("n", [], INT64)]))


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_tensors_of_a_sequence_are_stacked(tmp_path, axis):
    shape = [2, 3]
    shape.insert(axis % 3, 2)
    nodes = [node("SequenceEmpty", "", "e"), node("SequenceInsert", "e x", "s"), node("SequenceInsert", "s y", "t"),
             node("ConcatFromSequence", "t", "o", axis=axis, new_axis=1)]  # fmt: skip
    check(tmp_path, nodes, [("o", shape)])


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize(
    "lengths, attributes, shapes",
    [
        ("", {"axis": 1}, [[2, 1]] * 3),
        ("", {"axis": 1, "keepdims": 0}, [[2]] * 3),
        (" two", {"axis": 1}, [[2, 2], [2, 1]]),
        (" parts", {"axis": -1}, [[2, 1], [2, 2]]),
    ],
)
def test_a_tensor_is_split_into_a_sequence_which_is_a_result(tmp_path, lengths, attributes, shapes, opset):
    built = model(
        [node("SplitToSequence", f"x{lengths}", "s", **attributes)], XYZ[:1], [onnx.helper.make_tensor_sequence_value_info("s", 1, None)],
        [constant("two", 2), constant("parts", [1, 2])], opset=opset,
    )  # fmt: skip
    read = check_same(tmp_path, built, **arrays(x=[2, 3]))
    results = [read.shape(output) for output in range(len(read.output_bytes)) if read.output_is_result[output]]
    assert results == [tuple(shape) for shape in shapes]


def test_a_sequence_that_a_loop_fills(tmp_path):
    body = helper.make_graph(
        [node("Identity", "go", "go_on"), node("Add", "last_one x", "next"), node("SequenceInsert", "s next", "t")], "body",
        [value("number", [], INT64), value("go", [], onnx.TensorProto.BOOL), onnx.helper.make_tensor_sequence_value_info("s", 1, None),
         value("last_one", [2, 3])],
        [value("go_on", [], onnx.TensorProto.BOOL), onnx.helper.make_tensor_sequence_value_info("t", 1, None), value("next", [2, 3])],
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", "", "e"),
        node("Loop", "four - e y", "f end", body=body, name="loop"),
        node("ConcatFromSequence", "f", "o", axis=0),
    ]
    read = check(tmp_path, nodes, [("o", [8, 3]), ("end", [2, 3])], [constant("four", 4)])
    assert kinds(read).count("Add") == 4 and kinds(read).count("Concat") == 1


@pytest.mark.parametrize("given", [True, False])
def test_whether_an_optional_is_given_decides_a_branch(tmp_path, given):
    """ONNX Runtime has no kernel for some of these; their meaning is that of ONNX's reference."""
    branches = {
        f"{name}_branch": helper.make_graph(nodes, name, [], [value("r", [2, 3])])
        for name, nodes in (("then", [node("OptionalGetElement", "o", "g"), node("Relu", "g", "r")]), ("else", [node("Neg", "x", "r")]))
    }
    held = onnx.helper.make_tensor_type_proto(1, [2, 3])
    nodes = [
        node("Optional", "x" if given else "", "o", **({} if given else {"type": held})), node("OptionalHasElement", "o", "has"),
        node("If", "has", "y2", **branches),
    ]  # fmt: skip
    path = saved(tmp_path, model(nodes, XYZ, [value("y2", [2, 3])]))
    assert [kind in kinds(read_onnx(path)) for kind in ("Relu", "Neg")] == [given, not given]
    feed = arrays(x=[2, 3], y=[2, 3], z=[2, 3])
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    (result,) = evaluator(flat(path)).run(None, feed)
    assert (result == (feed["x"].clip(min=0) if given else -feed["x"])).all()


REFUSED = {
    "a sequence of the caller": (
        model([node("SequenceLength", "s", "n")], [onnx.helper.make_tensor_sequence_value_info("s", 1, [2])], ["n"]),
        "input 's': is a sequence, of as many tensors as a caller passes; make each of them an input",
    ),
    "an optional of the caller": (
        model([node("OptionalHasElement", "o", "n")],
              [onnx.helper.make_value_info("o", onnx.helper.make_optional_type_proto(onnx.helper.make_tensor_type_proto(1, [2])))], ["n"]),
        "input 'o': is an optional, which a caller may pass or not; make it an input of the tensor, or leave it out",
    ),
    "a position of values": (
        model([node("SequenceConstruct", "x y", "s"), node("SequenceAt", "s i", "t", name="at")], [*XYZ, value("i", [], INT64)], ["t"]),
        "node 'at' (SequenceAt): the position 'i' depends on values, which are not known before the step",
    ),
    "a position outside": (
        model([node("SequenceConstruct", "x y", "s"), node("SequenceAt", "s first", "t", name="at")], XYZ, ["t"], POSITIONS),
        "node 'at' (SequenceAt): position -3 in a sequence of 2",
    ),
    "an empty sequence": (
        model([node("SequenceEmpty", "", "s"), node("ConcatFromSequence", "s", "t", axis=0, name="join")], XYZ, ["t"]),
        "node 'join' (ConcatFromSequence): concatenates the sequence 's', which is empty",
    ),
    "lengths of values": (
        model([node("SplitToSequence", "x n", "s"), node("SequenceAt", "s zero", "t")], [*XYZ, value("n", [], INT64)], ["t"], POSITIONS),
        "the lengths of parts: 'n' depends on values",
    ),
    "no position": (
        model([node("SequenceConstruct", "x y", "s"), node("SequenceAt", "s", "t", name="at")], XYZ, ["t"]),
        "node 'at' (SequenceAt): has fewer inputs than its kind takes",
    ),
    "a reader of an unknown kind": (
        model([node("SequenceConstruct", "x y", "s"), node("Odd", "s", "t", domain="mine")], XYZ, [value("t", [2])]),
        "(SequenceConstruct): is read by a node whose kind takes no sequences",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_values_decide_is_refused_with_that_reason(tmp_path, what):
    built, message = REFUSED[what]
    with pytest.raises(ValueError) as error:
        child.read(str(saved(tmp_path, built)), {})
    assert message in str(error.value) and "\n" not in str(error.value)
