"""Labels name metrics and files of problems: whatever graphs are called, no two share one, and each can be a file's name."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import chains

from gnnplace.training.update.lesson import labels

PROBLEM = chains(2, 2, 2)


def named(*names):
    return labels([replace(PROBLEM, graph=replace(PROBLEM.graph, name=name)) for name in names])


def test_names_that_look_alike_have_labels_of_their_own():
    cluster = PROBLEM.cluster.name
    assert named("a_b", "a/b", "c")[:3] == [f"a_b.{cluster}", f"a_b.{cluster}-2", f"c.{cluster}"]
    posed = [replace(PROBLEM, cluster=replace(PROBLEM.cluster, name=name)) for name in ("p", "p", "p-2")]
    assert len(set(labels(posed))) == 3


@settings(max_examples=25)
@given(st.lists(st.text(st.sampled_from("aé/_-2$"), min_size=1, max_size=3).map(lambda text: text * 100), max_size=5))
def test_long_names_are_cut_and_still_differ(names):
    found = named(*names)
    assert len(set(found)) == len(names) and all(len(label) < 200 for label in found)
