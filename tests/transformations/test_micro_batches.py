"""Steps of micro-batches of a few ops, worked out by hand, and what is refused."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import yaml
from support.graphs import edges_of, op_of
from support.worked_examples import document_of

from gnnplace.formats.graphs import graph_of
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.transformations.micro_batches import micro_batches

WEIGHT = """
w: {kernel: false, persistent_bytes: 40, outputs: [0]}
r: {kernel: false, reads: [w], outputs: [{bytes: 40, alias_of: w}]}
x: {kernel: false, canonical_kind: input, outputs: [{bytes: 40, shape: [10], dtype: float32}]}
"""
TENSOR = "{bytes: 40, shape: [10], dtype: float32}"
GRADIENT = f"g: {{phase: backward_weight, reads: [x, r], outputs: [{TENSOR}]}}"
UPDATE = "u: {phase: update, reads: [w, g]}"


def graph(*lines: str) -> ComputationGraph:
    """A graph in the shorthand of the worked examples."""
    return graph_of(document_of(yaml.safe_load("\n".join(lines))))


def trained(*lines: str, number: int = 2, **options: Any) -> ComputationGraph:
    return micro_batches(graph(WEIGHT, *lines), number, **options)


def buffer(step: ComputationGraph, name: str) -> str:
    """The op that owns the buffer of an op's first output."""
    root = step.output_root[step.output_ptr[op_of(step, name)]]
    return step.op_names[step.output_op[root]]


def groups(step: ComputationGraph) -> dict[str, list[str]]:
    members = defaultdict(list)
    for op, name in enumerate(step.op_names):
        members[step.colocation[op]].append(name)
    return {group: names for group, names in members.items() if group is not None}


def reads(step: ComputationGraph, name: str) -> set[str]:
    """The data inputs of an op; those but the first output with their number."""
    return {src + (f".{k}" if k else "") for src, k, dst in edges_of(step) if dst == name and k != CONTROL}


def waits(step: ComputationGraph) -> set[tuple[str, str]]:
    return {(src, dst) for src, k, dst in edges_of(step) if k == CONTROL}


def test_a_step_in_full():
    step = trained(GRADIENT, UPDATE, number=3)
    assert step.op_names == ("w", "r", "x@0", "x@1", "x@2", "g@0", "g@1", "g@2", "u", "g/sum@1", "g/sum@2")
    assert edges_of(step) == {
        ("w", 0, "r"), ("w", 0, "u"), ("g/sum@2", 0, "u"),
        *(("r", 0, f"g@{m}") for m in range(3)), *((f"x@{m}", 0, f"g@{m}") for m in range(3)),
        ("g@0", 0, "g/sum@1"), ("g@1", 0, "g/sum@1"), ("g/sum@1", 0, "g/sum@2"), ("g@2", 0, "g/sum@2"),
    }  # fmt: skip
    assert [int(step.flops[op_of(step, name)]) for name in ("g/sum@1", "g/sum@2")] == [10, 10]
    copies = step.copies
    assert copies is not None and copies.original.op_names == ("w", "r", "x", "g", "u")
    assert copies.source.tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 4, 3, 3]
    assert copies.micro_batch.tolist() == [NONE, NONE, 0, 1, 2, 0, 1, 2, NONE, 1, 2]
    assert copies.added.tolist() == [False] * 9 + [True] * 2
    assert (copies.shares, copies.micro_batches, copies.replicas) == ((3,), 3, 1)


VIEW = "v: {kernel: false, phase: backward_weight, reads: [g], outputs: [{bytes: 40, alias_of: g}]}"
INDICES = "i: {phase: forward, reads: [x], outputs: [{bytes: 24, dtype: int64}]}"


@pytest.mark.parametrize(
    ("lines", "summed", "owner"),
    [
        ([GRADIENT, UPDATE], "g", "g@0"),
        ([GRADIENT, UPDATE, "n: {phase: update, reads: [g], outputs: [4]}"], "g", "g@0"),  # a norm reads the sum, too
        ([GRADIENT, UPDATE, "p: {phase: backward_data, reads: [g]}"], "g", "g/sum@1"),  # the pass reads the gradient
        ([GRADIENT, VIEW, "u: {phase: update, reads: [w, v]}"], "v", "g@0"),
        ([GRADIENT, VIEW, "u: {phase: update, reads: [w, v]}", "p: {phase: backward_data, reads: [v]}"], "v", "v/sum@1"),
        ([GRADIENT, VIEW, UPDATE, "t: {phase: update, reads: [v]}"], "g", "g/sum@1"),  # two sums in one buffer
        ([GRADIENT, VIEW, UPDATE, "t: {phase: update, kernel: false, reads: [v], outputs: [{bytes: 40, alias_of: v}]}"], "v", "v/sum@1"),
        ([f"g: {{phase: backward_weight, reads: [x, r], outputs: [{TENSOR[:-1]}, is_result: true}}]}}", UPDATE], "g", "g/sum@1"),
        (["g: {phase: backward_weight, kernel: false, reads: [x, r], outputs: [{bytes: 40, alias_of: r}]}", UPDATE], "g", "g/sum@1"),
        ([GRADIENT, UPDATE, INDICES, "s: {phase: update, reads: [w, g, i]}"], "g", "g/sum@1"),  # a concatenation reads it, too
    ],
)  # fmt: skip
def test_a_sum_is_in_place_where_nobody_else_needs_the_buffer(lines, summed, owner):
    step = trained(*lines, number=3)
    assert [buffer(step, f"{summed}/sum@{m}") for m in (1, 2)] == [owner] * 2


def test_the_sum_of_a_view_that_an_update_returns():
    """An update that returns a view of its gradient returns one of the sum."""
    step = trained(GRADIENT, "u: {phase: update, reads: [w, g], outputs: [{bytes: 40, alias_of: g}, {bytes: 0, alias_of: w}]}")
    assert buffer(step, "u") == "g@0" and reads(step, "u") == {"w", "g/sum@1"}


def test_a_scalar_is_read_of_every_copy():
    step = trained("g: {phase: backward_weight, reads: [x, r], outputs: [1, {bytes: 8}]}",
                   "u: {phase: update, kernel: false, reads: [g, g.1, w], after: [x], outputs: [{bytes: 1, alias_of: g}]}")  # fmt: skip
    assert reads(step, "u") == {"w", "g@0", "g@1", "g@0.1", "g@1.1"} and buffer(step, "u") == "g@1"
    assert waits(step) == {("x@0", "u"), ("x@1", "u")}
    assert not any("sum" in name for name in step.op_names)


def test_running_means_of_tensorflow_are_updated_in_order():
    step = trained(GRADIENT, UPDATE, """
m: {kernel: false, persistent_bytes: 4, outputs: [0]}
q: {kernel: false, phase: update, reads: [m], outputs: [{bytes: 4, alias_of: m}]}
d: {phase: update, reads: [q, x], outputs: [4]}
k: {kernel: false, phase: update, outputs: [4]}
e: {phase: update, reads: [d, k], outputs: [4]}
a: {phase: update, reads: [m, e]}
n: {kernel: false, phase: update, after: [u, a]}
""")  # fmt: skip
    running = {name.split("@")[0] for name in step.op_names if name.endswith("@1")}
    assert running == {"x", "g", "q", "d", "k", "e", "a", "g/sum"}
    assert waits(step) == {("a@0", "q@1"), ("a@0", "d@1"), ("a@0", "a@1"), ("a@0", "n"), ("a@1", "n"), ("u", "n")}
    assert reads(step, "d@1") == {"q@1", "x@1"} and reads(step, "a@1") == {"m", "e@1"}


def test_running_means_of_pytorch_are_updated_in_order():
    step = trained(GRADIENT, UPDATE, """
m: {kernel: false, persistent_bytes: 4, outputs: [0]}
q: {kernel: false, phase: forward, reads: [m], outputs: [{bytes: 4, alias_of: m}]}
a: {phase: forward, reads: [q, x], outputs: [{bytes: 4, alias_of: q}]}
b: {phase: forward, reads: [a, x]}
""")  # fmt: skip
    assert "q" in step.op_names and {"a@0", "a@1"} <= set(step.op_names)
    assert waits(step) == {("a@0", "a@1"), ("a@0", "b@1"), ("b@0", "a@1")}  # `b` reads what its micro-batch wrote


def test_a_counter_and_a_norm_are_no_running_state():
    step = trained(GRADIENT, UPDATE, """
c: {kernel: false, persistent_bytes: 8, outputs: [0]}
one: {kernel: false, phase: other, outputs: [8]}
t: {phase: update, reads: [c, one]}
rate: {kernel: false, canonical_kind: input, outputs: [{bytes: 4, shape: []}]}
s: {phase: update, reads: [c, rate]}
n: {phase: update, reads: [g], outputs: [4]}
o: {phase: update, reads: [x], outputs: [40], persistent_bytes: 4}
""")  # fmt: skip
    assert {"one", "t", "rate", "s", "n", "o"} <= set(step.op_names) and "x/sum@1" in step.op_names


SPARSE = """
ids: {kernel: false, canonical_kind: input, outputs: [{bytes: 80, shape: [10], dtype: int64}]}
g: {phase: backward_weight, reads: [ids, x], outputs: [{bytes: 120, shape: [10, 3], dtype: float32}]}
q: {phase: update, flops: 7, bytes_accessed: 11, workspace_bytes: 5, reads: [ids], outputs: [{bytes: 80, shape: [10], dtype: int64}, 4]}
s: {phase: update, time_ns: {gpu: 6}, reads: [g, q], outputs: [{bytes: 120, shape: [10, 3]}, {bytes: 120, shape: [40]}]}
u: {phase: update, reads: [w, q, s], flops: 9, outputs: [{bytes: 40, shape: [10], alias_of: w}]}
n: {phase: update, reads: [w]}
"""


def test_sparse_gradients_are_concatenated_and_applied_once():
    step = trained(SPARSE, number=3)
    assert reads(step, "q") == {"ids/concat"} and reads(step, "s") == {"q", "g/concat"} and reads(step, "u") == {"w", "q", "s"}
    assert not any("sum" in name for name in step.op_names)
    found = {name: op_of(step, name) for name in step.op_names}
    assert [int(step.flops[found[name]]) for name in ("q", "u", "ids/concat")] == [21, 27, 0]
    assert (int(step.bytes_accessed[found["q"]]), int(step.workspace_bytes[found["q"]])) == (33, 15)
    assert step.given_time_ns[found["s"]].tolist() == [18] and step.given_time_ns[found["n"]].tolist() == [1]
    shapes = {name: [step.shape(k) for k in range(*step.output_ptr[op : op + 2].tolist())] for name, op in found.items()}
    assert shapes["q"] == [(30,), None] and shapes["s"] == [(30, 3), (40,)] and shapes["u"] == [(10,)]  # the table does not grow
    assert shapes["g/concat"] == [(30, 3)] and step.output_bytes[step.output_ptr[found["g/concat"]]] == 360


def test_a_single_row_is_a_row():
    """Its index has 8 bytes, and so has its gradient; a number of no dimensions is a scalar."""
    step = trained("""
ids: {kernel: false, canonical_kind: input, outputs: [{bytes: 8, shape: [1], dtype: int64}]}
k: {phase: forward, reads: [x], outputs: [{bytes: 8, shape: [], dtype: int64}]}
g: {phase: backward_weight, reads: [ids, x], outputs: [{bytes: 8, shape: [1, 2], dtype: float32}]}
u: {phase: update, reads: [w, g, ids, k], flops: 9, outputs: [{bytes: 40, shape: [10], alias_of: w}]}
d: {phase: update, reads: [w, g, k]}
""", number=3)  # fmt: skip
    counts = {"k@0", "k@1", "k@2"}
    assert reads(step, "u") == {"w", "g/concat", "ids/concat", *counts} and reads(step, "d") == {"w", "g@0", "g@1", "g@2", *counts}
    concat = int(step.output_ptr[op_of(step, "g/concat")])
    assert (step.flops[op_of(step, "u")], step.shape(concat), step.output_bytes[concat]) == (27, (3, 2), 24)


def test_losses_are_divided_and_the_means_are_results():
    step = trained("""
l: {phase: forward, reads: [x], outputs: [40, {bytes: 4, shape: [], is_result: true}, {bytes: 8, is_result: true}]}
v: {kernel: false, phase: backward_data, reads: [l.1], outputs: [{bytes: 4, alias_of: l.1}]}
f: {phase: forward, reads: [l.1], outputs: [{bytes: 40, is_result: true}]}
g: {phase: backward_weight, reads: [v, l, r], outputs: [40]}
u: {phase: update, reads: [w, g], outputs: [4]}
b: {phase: backward_data, reads: [u, l.1]}
""")  # fmt: skip
    assert step.op_names[-5:] == ("l/mean1@0", "l/mean1@1", "l/mean2@0", "l/mean2@1", "g/sum@1")
    assert reads(step, "b") == {"u", "l@0.1", "l@1.1"}  # it runs once
    assert reads(step, "l/mean1@1") == {"l@1.1"} and reads(step, "v@1") == {"l/mean1@1"} and reads(step, "f@1") == {"l@1.1"}
    assert buffer(step, "v@1") == "l/mean1@1" and step.flops[op_of(step, "l/mean1@1")] == 1
    results = {step.op_names[op] for op in step.output_op[step.output_is_result]}
    assert results == {"f@0", "f@1", "l/mean1@0", "l/mean1@1", "l/mean2@0", "l/mean2@1"}


def test_requests_in_flight_have_no_losses():
    step = trained("l: {phase: forward, reads: [x, r], outputs: [{bytes: 4, is_result: true}]}")
    assert step.op_names == ("w", "r", "x@0", "x@1", "l@0", "l@1") and step.output_is_result.sum() == 2


def test_what_is_derived_from_weights_runs_once():
    step = trained(GRADIENT, UPDATE, """
c: {phase: forward, reads: [r], outputs: [20]}
z: {kernel: false, outputs: [8]}
t: {phase: backward_data, reads: [c, z], outputs: [20]}
noise: {phase: forward, canonical_kind: random, reads: [r], outputs: [20]}
p: {phase: forward, reads: [x, t, noise]}
k: {kernel: false, outputs: [8]}
h: {phase: forward, reads: [k, x]}
""")  # fmt: skip
    assert {"c", "z", "t", "noise@1", "p@1", "k@1", "h@1"} <= set(step.op_names)


@pytest.mark.parametrize(("shared", "names"), [((), ("a@0", "b@0", "one")), (("a",), ("a", "b@0", "one")), (["b", "a"], ("a", "b", "one"))])
def test_shared_inputs(shared, names):
    inputs = [f"{name}: {{kernel: false, canonical_kind: input, outputs: [{{bytes: 40, shape: [10]}}]}}" for name in "ab"]
    one = "one: {kernel: false, canonical_kind: input, outputs: [{bytes: 4, shape: []}]}"
    step = trained(GRADIENT, UPDATE, *inputs, one, shared=shared)
    assert set(names) <= set(step.op_names)


def test_constants_and_inputs_of_the_update_are_nothing_that_it_computed():
    step = trained(GRADIENT, UPDATE, """
rate: {kernel: false, canonical_kind: input, phase: update, outputs: [40]}
ones: {kernel: false, phase: update, outputs: [40]}
p: {phase: forward, reads: [x, rate, ones]}
""")  # fmt: skip
    assert reads(step, "p@1") == {"x@1", "rate", "ones"}


def test_an_op_that_holds_parameters_is_split():
    step = trained("a: {phase: forward, persistent_bytes: 12, outputs: [4]}", "b: {phase: forward, reads: [a], persistent_bytes: 8}")
    assert step.op_names[-8:] == ("a@0", "a@1", "b@0", "b@1", "a/state", "a/read", "b/state", "b/read")
    assert reads(step, "b@1") == {"a@1", "b/read"} and reads(step, "a@1") == {"a/read"} and buffer(step, "a/read") == "a/state"
    assert groups(step) == {"x@": ["x@0", "x@1"], "a/state": ["a@0", "a@1", "a/state", "a/read"],
                            "b/state": ["b@0", "b@1", "b/state", "b/read"]}  # fmt: skip
    accessed = [int(step.effective_bytes_accessed[op_of(step, name)]) for name in ("a@0", "b@0")]
    assert accessed == [4, 4] and step.persistent_bytes.sum() == 60


def test_groups_of_copies():
    lines = (GRADIENT[:-1] + ", colocation: h}", UPDATE[:-1] + ", colocation: h}", "p: {phase: forward, reads: [x]}")
    together, free = trained(*lines), trained(*lines, copies="free")
    assert groups(together) == {"h": ["g@0", "g@1", "u", "g/sum@1"], "x@": ["x@0", "x@1"], "p@": ["p@0", "p@1"]}
    assert groups(free) == {"h@0": ["g@0"], "h@1": ["g@1"], "h": ["u", "g/sum@1"]}


REFUSED = "u: {phase: update, reads: [w, g], outputs: [4]}"


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_of_micro_batches_is_at_least_one(number):
    with pytest.raises(ValueError, match=rf"micro_batches: {number} is no number of micro-batches; an integer of at least 1"):
        trained(GRADIENT, UPDATE, number=number)


@pytest.mark.parametrize("number", [True, "3", 2.0, None])
def test_a_number_of_micro_batches_is_an_integer(number):
    with pytest.raises((ValueError, TypeError)) as refused:  # TypeError: of the type checker under which tests run
        trained(GRADIENT, UPDATE, number=number)
    assert repr(number) in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ([WEIGHT, GRADIENT, UPDATE], {"number": 5_000_000}, r"5000000 make more ops than the 10,000,000 that a graph may have"),
        ([WEIGHT, GRADIENT, UPDATE], {"number": 10**30}, r"1000000000000000000000000000000 are more than the 10,000,000 ops"),
        ([WEIGHT, SPARSE.replace("flops: 7", f"flops: {2**59}")], {"number": 3}, r"micro_batches: 3 times the flops 576460752303423488 of"),
        ([WEIGHT, GRADIENT], {}, r"a backward pass and no op of phase 'update'"),
        ([WEIGHT], {}, r"phase: no op of the graph has one"),
        ([WEIGHT, GRADIENT, UPDATE], {"shared": ["x", "y"]}, r"shared: 'y' is no input of the graph; those are x$"),
        ([WEIGHT, GRADIENT, UPDATE], {"shared": ["w"]}, r"shared: 'w' is no input of the graph; those are x$"),
        ([WEIGHT, GRADIENT, REFUSED, "p: {phase: forward, reads: [x, u]}"], {}, r"op 'p' reads what an update computed and 'x' of a mi"),
        ([WEIGHT, GRADIENT, UPDATE, "x@1: {kernel: false, persistent_bytes: 4}"], {}, r"op 'x@1' has the name of a copy or a sum of"),
        ([WEIGHT, GRADIENT, UPDATE, "g/sum: {phase: forward, reads: [x]}"], {}, r"op 'g/sum@1' has the name of a copy or a sum of another"),
        ([WEIGHT, GRADIENT, UPDATE, "'y': {phase: update, colocation: x@}"], {}, r"colocation group 'x@' has the name of a copy"),
        ([WEIGHT, "a: {phase: forward, persistent_bytes: 4}", "a/state: {phase: forward}"], {}, r"'a/state' is not unique"),
        ([WEIGHT, "a: {phase: forward, persistent_bytes: 4}", "b: {phase: forward, colocation: a/state}"], {}, r"group 'a/state' has the"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_line(lines, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        micro_batches(graph(*lines), **({"number": 2} | options))
    assert "\n" not in str(refused.value)
