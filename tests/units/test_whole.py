"""What stays whole in a form: groups by hand, in every form, of all ops and of some."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from support.layered import layered

from gnnplace.graph import NONE
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.granularity import granularity_of, runs
from gnnplace.units.modules import modules
from gnnplace.units.whole import tied

WEIGHT = "w0 w0/read u0 g0/sum@1"
FORMS = {
    Parallelism(2): [f"{WEIGHT} f0@0 b0@0 g0@0 loss@0 loss/mean@0 f0@1 b0@1 g0@1 loss@1 loss/mean@1", "x@0 x@1"],
    Parallelism(2, "free"): [WEIGHT, "f0@0 b0@0 g0@0 loss@0 loss/mean@0", "f0@1 b0@1 g0@1 loss@1 loss/mean@1"],
    Parallelism(2, "anchored"): [WEIGHT, "f0@0 b0@0 g0@0 loss@0 loss/mean@0", "f0@1 b0@1 g0@1 loss@1 loss/mean@1"],
    Parallelism(2, "fetched"): [
        f"{WEIGHT} w0/read/fetch@0 w0/read/fetch@0b w0/read/fetch@1 w0/read/fetch@1b",
        "f0@0 b0@0 g0@0 loss@0 loss/mean@0",
        "f0@1 b0@1 g0@1 loss@1 loss/mean@1",
    ],
}  # fmt: skip


def groups(graph) -> set[frozenset[str]]:
    members = defaultdict(set)
    for name, group in zip(graph.op_names, graph.colocation.index.tolist(), strict=True):
        members[group].add(name)
    return {frozenset(names) for group, names in members.items() if group != NONE}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.copies)
def test_a_module_is_whole_at_home_and_for_each_micro_batch(form):
    graph = form.of(layered(1))
    part = np.where(np.array(graph.original.op_names) == "x", NONE, 0)  # all of the layer, but not the input
    assert groups(tied(graph, part)) == {frozenset(names.split()) for names in FORMS[form]}


def test_replicas_have_homes_of_their_own():
    """What a ring adds stands with the weight; a micro-batch stands where it likes if copies are free."""
    one = layered(1)
    part = np.zeros(one.num_ops, dtype=np.int64)
    for copies, homes in (("together", 2), ("free", 2 + 3)):
        graph = Parallelism(3, copies, shares=(1, 2)).of(one)
        ties = tied(graph, part)
        names = groups(ties)
        assert len(names) == homes and not any({"u0@r0", "u0@r1"} <= each for each in names)
        for replica in (0, 1):
            (home,) = [each for each in names if f"w0@r{replica}" in each]
            assert {f"u0@r{replica}", f"bucket0/reduced@r{replica}"} <= home
            assert ("f0@0" in home) == (copies == "together" and replica == 0)
        assert ties.copies.part is part


def test_an_input_is_data_that_lies_anywhere_where_copies_are_free():
    one = layered(1)
    part = np.zeros(one.num_ops, dtype=np.int64)
    grouped = {name for each in groups(tied(Parallelism(2, "free").of(one), part)) for name in each}
    assert {"x@0", "x@1"}.isdisjoint(grouped) and "f0@0" in grouped
    assert {"x@0", "x@1", "f0@0"} <= next(iter(groups(tied(Parallelism(2).of(one), part))))


def test_stages_are_those_of_each_replica():
    one = layered(2)
    layer_of = modules(one).module

    def said(form, place):
        graph = form.of(one)
        copies = graph.copies
        columns = (layer_of[copies.source], copies.micro_batch, copies.replica, copies.added)
        keys = zip(*(column.tolist() for column in columns), strict=True)
        device = np.array([place(*key) for key in keys], dtype=np.int32)
        return granularity_of(graph, device), runs(graph, device)

    assert said(Parallelism(2), lambda layer, *_: layer) == ("stage", 2)
    assert said(Parallelism(2, replicas=2, copies="whole"), lambda layer, batch, replica, added: replica) == ("stage", 1)
    # both replicas share the last device: it has one run in each
    assert said(Parallelism(2, replicas=2), lambda layer, batch, replica, added: (replica, 2)[layer]) == ("stage", 2)
    assert said(Parallelism(2), lambda layer, batch, *_: max(batch, 0)) == ("op", None)


def test_free_copies_are_whole_modules_though_each_micro_batch_has_a_device_of_its_own():
    graph = Parallelism(2, "free").of(layered(2))
    part = modules(graph.original).module.astype(np.int64)
    copies, mean = graph.copies, np.array(["/mean" in name for name in graph.op_names])
    device = np.where((copies.micro_batch != NONE) & (~copies.added | mean), copies.micro_batch, 2).astype(np.int32)
    assert granularity_of(graph, device) == "module" == granularity_of(tied(graph, part), device)
    device[graph.op_names.index("b0@1")] = 0
    assert granularity_of(graph, device) == "op"
