"""The record of a step of micro-batches: checked where it is built, read off a graph, and compared."""

import pytest

from gnnplace.corpus import manifest
from gnnplace.transformations.parallelism import Parallelism


@pytest.fixture(scope="module")
def graph():
    return manifest.graph("dlrm")


def ringed(ring_size, replicas=4):
    """The fields of a step of eight micro-batches."""
    return (8, "whole", (), replicas, (), (), (), ring_size)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0,), "micro_batches: 0 is no number of micro-batches; at least 1"),
        ((-1,), "micro_batches: -1 is no number"),
        ((True,), "micro_batches: True is no number"),
        (ringed(1), "ring_size: 1 is no number of replicas in a ring; at least 2, or 0 for one ring"),
        (ringed(-2), "ring_size: -2 is no number"),
        (ringed(True), "ring_size: True is no number"),
        (ringed(3), "ring_size: 3 does not divide the 4 replicas"),
        (ringed(8), "ring_size: 8 does not divide the 4 replicas"),
        (ringed(2, 1), "ring_size: a step of one replica has no ring; say replicas, too"),
    ],
)
def test_what_is_no_step_is_refused(values, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        Parallelism(*values)
    assert "\n" not in str(caught.value)


def test_a_graph_knows_the_step_that_it_is(graph):
    step = Parallelism(4, "free", ("input_2", "input_1", "input_2"))
    assert step.shared == ("input_1", "input_2") and Parallelism.in_graph(step.of(graph)) == step
    assert Parallelism().of(graph) is graph and Parallelism.in_graph(graph) == Parallelism()
    assert step.of(graph).original is graph and graph.original is graph and (graph.micro_batches, step.of(graph).micro_batches) == (1, 4)
    with pytest.raises(ValueError, match=r"^micro_batches: 2 of 'dlrm', which is a step of 4 already; give the graph of one$"):
        Parallelism(2).of(step.of(graph))


def test_a_step_knows_its_rings(graph):
    step = Parallelism(*ringed(2))
    assert Parallelism.in_graph(step.of(graph)) == step and step.knobs()["ring_size"] == 2
    assert Parallelism(*ringed(4)) == Parallelism(*ringed(0)) != step
    assert step.difference(Parallelism(*ringed(0))) == "ring_size: 2 is not 0"


def test_a_step_takes_another_form_and_shares_what_it_shared(graph):
    captured = Parallelism(4, shared=("input_2",)).of(graph)
    assert Parallelism(4).of(captured) is Parallelism(4, shared=("input_2",)).of(captured) is captured
    form = Parallelism(4, "whole", ("input_1",), replicas=2).of(captured)
    assert Parallelism.in_graph(form) == Parallelism(4, "whole", ("input_1", "input_2"), 2) and form.original is graph


@pytest.mark.parametrize("number", [10**7, 10**13, 10**30])
def test_what_is_too_large_is_refused_before_memory_is_asked_for(graph, number):
    with pytest.raises(ValueError, match=rf"^micro_batches: {number} (are|make) more .*than the 10,000,000"):
        Parallelism(number).of(graph)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (Parallelism(), Parallelism(1, "free", ("x",)), None),
        (Parallelism(2, "free", ("x", "y")), Parallelism(2, "free", ("y", "x")), None),
        (Parallelism(8), Parallelism(), "micro_batches: 8 is not 1"),
        (Parallelism(2, "free"), Parallelism(2), "copies: 'free' is not 'together'"),
        (Parallelism(2), Parallelism(2, shared=("x",)), "shared: () is not ('x',)"),
    ],
)
def test_two_steps_differ_by_what_makes_them(one, other, difference):
    assert one.difference(other) == difference
    assert Parallelism(2, "free").knobs() == {"micro_batches": 2, "copies": "free"} and Parallelism(1, "free").knobs() == {}
