"""Families of weights: which replica works on a micro-batch, what is copied and what is sent, and what is refused."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from support.layered import layered

from gnnplace.graph import CONTROL, Categorical, ComputationGraph
from gnnplace.transformations.families import assigned
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.replicas import replicas

CUT = (("layer.1", (0, 2, 2)),)
WEIGHT = 3  # the persistent bytes of a layer, in those of its weight


@pytest.mark.parametrize(
    ("shares", "family", "replica"),
    [
        ((1, 1, 3, 3), (0, 0, 4, 4), [2, 3, 2, 2, 2, 3, 3, 3]),
        ((2, 2, 2, 2), (3, 3, 2, 0), [0, 0, 1, 1, 2, 2, 0, 1]),
        ((2, 2, 2, 2), (0, 0, 0, 8), [3] * 8),
        ((3, 1), (1, 3), [0, 1, 1, 1]),
        ((2, 2), (2, 2), [0, 0, 1, 1]),
    ],
)
def test_a_micro_batch_stays_while_its_replica_has_room(shares, family, replica):
    assert assigned(shares, family).tolist() == replica


def crossing(step: ComputationGraph) -> set[str]:
    """What one replica reads of another, but for rings."""
    replica = step.copies.replica
    crosses = (replica[step.edge_src] != replica[step.edge_dst]) & (step.edge_output != CONTROL)
    return {step.op_names[op] for op in step.edge_src[crosses].tolist() if "bucket" not in step.op_names[op]}


def test_of_a_micro_batch_that_is_cut_only_activations_and_their_gradients_are_sent():
    step = replicas(layered(2, weight=100), [1, 1, 2], "whole", family_shares=CUT)
    passes = {"f0@0", "b1@0"}  # micro-batch 0 goes on, on replica 1, and its gradient comes back
    assert crossing(step) == passes | {"f1@0", "loss/mean@0"}  # the loss, which has no layer, stays
    names = [name for name in step.op_names if name.startswith(("w1", "u1", "g1/sum", "u0"))]
    assert names == ["w1@r1", "w1@r2", "w1/read@r1", "w1/read@r2", "u1@r1", "u1@r2", "u0@r0", "u0@r1", "u0@r2", "g1/sum@1", "g1/sum@3"]
    groups = dict(zip(step.op_names, (step.colocation[op] for op in range(step.num_ops)), strict=True))
    assert (groups["f0@0"], groups["f1@0"], groups["f1@1"], groups["f1@3"]) == ("@r0", "@r1", "@r1", "@r2")
    rings = {name.rpartition("/reduced@")[::2] for name in step.op_names if "/reduced@" in name}
    assert rings == {("bucket0", "r1"), ("bucket0", "r2"), *(("bucket1", f"r{replica}") for replica in range(3))}


def test_each_family_has_its_persistent_bytes_on_each_of_its_replicas():
    given = (("layer.0", (0, 0, 4)), ("layer.2", (1, 3, 0)))
    step = Parallelism(4, "whole", shares=(1, 1, 2), family_shares=given).of(layered(3, weight=100))
    held = {layer: int(step.persistent_bytes[step.layer.among([layer])].sum()) for layer in ("layer.0", "layer.1", "layer.2")}
    assert held == {"layer.0": WEIGHT * 100, "layer.1": 3 * WEIGHT * 100, "layer.2": 2 * WEIGHT * 100}
    assert "bucket1/flat@r0" not in step.op_names and "g0/sum@3" in step.op_names  # one replica sums without a ring


def test_a_stage_on_one_replica_has_what_one_home_has():
    graph = layered(2, weight=100)
    family = replicas(graph, [1, 1], family_shares=(("layer.1", (0, 2)),))
    home = replicas(graph, [1, 1], one_home=["layer.1"])
    assert family.num_ops == home.num_ops and family.persistent_bytes.sum() == home.persistent_bytes.sum()
    assert {name.removesuffix("@r1") for name in family.op_names} == {name.removesuffix("@r1") for name in home.op_names}


@pytest.mark.parametrize("copies", ["together", "free", "whole"])
def test_shares_of_the_step_make_no_family(copies):
    graph, shares = layered(2), (1, 3)
    one, other = replicas(graph, shares, copies), replicas(graph, shares, copies, family_shares=(("layer.*", shares),))
    for column in fields(ComputationGraph):
        mine, theirs = getattr(one, column.name), getattr(other, column.name)
        if isinstance(mine, Categorical):
            assert mine.values == theirs.values and np.array_equal(mine.index, theirs.index)
        elif column.name != "copies":
            assert np.array_equal(mine, theirs), column.name
    alone = replicas(graph, [4], copies, family_shares=(("layer.0", (4,)),))
    assert alone.op_names == Parallelism(4, copies).of(graph).op_names


def test_a_graph_knows_its_families():
    form = Parallelism(4, shares=(1, 1, 2), family_shares=(("loss*", (0, 2, 2)), *CUT, *CUT))
    assert form.family_shares == (*CUT, ("loss*", (0, 2, 2)))
    form = Parallelism(4, shares=(1, 1, 2), family_shares=CUT)
    assert Parallelism.in_graph(form.of(layered(2))) == form
    assert form.knobs()["family_shares"] == {"layer.1": [0, 2, 2]}
    assert Parallelism(4, shares=(1, 1, 2)).difference(form) == f"family_shares: () is not {CUT!r}"


@pytest.mark.parametrize(
    ("families", "line"),
    [
        ([("a", (0, 8))], r"\(0, 8\) of 'a' are those of 2 replicas, not of 4"),
        ([("a", (0, 0, 4, 5))], r"\(0, 0, 4, 5\) of 'a' sum to 9, not to 8 micro-batches"),
        ([("a", (-1, 1, 4, 4))], r"\(-1, 1, 4, 4\) of 'a' are no numbers of micro-batches; at least 0"),
        ([("a", (0, 0, 4, 4)), ("a", (2, 2, 2, 2))], "'a' has two; name it once"),
    ],
)  # fmt: skip
def test_what_are_no_shares_of_a_family_is_refused_in_one_line(families, line):
    with pytest.raises(ValueError, match=f"^family_shares: {line}$"):
        Parallelism(8, shares=(1, 1, 3, 3), family_shares=tuple(families))


def test_one_replica_has_no_families():
    with pytest.raises(ValueError, match=r"^family_shares: a step of one replica has every family; say replicas, too$"):
        Parallelism(8, family_shares=(("a", (8,)),))


@pytest.mark.parametrize(
    ("families", "homes", "line"),
    [
        ([("layer.7", (0, 2))], [], "'layer.7' matches no layer"),
        ([("layer.1", (0, 2)), ("layer.*", (2, 0))], [], "layer 'layer.1' matches 'layer.1' and 'layer.*', of another family"),
        ([("layer.1", (0, 2))], ["layer.*"], "layer 'layer.1' matches 'layer.1' and 'layer.*', of another family"),
    ],
)  # fmt: skip
def test_a_layer_has_one_family(families, homes, line):
    with pytest.raises(ValueError) as refused:
        Parallelism(2, replicas=2, one_home=tuple(homes), family_shares=tuple(families)).of(layered(2))
    assert str(refused.value).removesuffix("; name it once") == f"family_shares: {line}"
