"""The picture of a graph shows how many ops could run at once, and when each layer could run, with free transfers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from support.graphs import op

from gnnplace.graph import ComputationGraph
from gnnplace.report.graph_picture import INTERVALS, at_once, draw_layers, draw_parallelism, write_graph_picture
from gnnplace.report.picture import FORMATS, save

MS = 10**6


@pytest.fixture
def diamond():
    """`a` (1 ms), then `b` (2 ms) beside `c` (1 ms, no layer), then `d` (1 ms): layers first, second, none, first."""
    ops = [
        op("a", layer="first", phase="forward"),
        op("b", layer="second", phase="forward"),
        op("c", phase="backward_data"),
        op("d", layer="first", phase="update"),
    ]
    graph = ComputationGraph.from_ops("diamond", ops, [(0, 0, 1), (0, 0, 2), (1, 0, 3), (2, 0, 3)])
    return graph, np.array([0, 1, 1, 3]) * MS, np.array([1, 3, 2, 4]) * MS


def test_what_runs_at_once_is_stacked_by_phase(diamond):
    graph, start, end = diamond
    axes = Figure().add_subplot()
    draw_parallelism(axes, graph, start, end)
    stairs = [patch.get_data() for patch in axes.patches]
    quarter = INTERVALS // 4
    tops = [[data.values[step * quarter + quarter // 2] for step in range(4)] for data in stairs]
    assert tops == pytest.approx(np.array([[1, 1, 1, 0], [1, 2, 1, 0], [1, 2, 1, 1]]))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["forward", "backward_data", "update"]


def test_a_row_for_each_layer_the_earliest_on_top_and_none_at_the_bottom(diamond):
    graph, start, end = diamond
    axes = Figure().add_subplot()
    draw_layers(axes, graph, start, end)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second", "no layer"]
    drawn = [
        [path.vertices[:, 0].min(), path.vertices[:, 0].max(), path.vertices[:, 1].mean().round()]
        for collection in axes.collections
        for path in collection.get_paths()
    ]
    assert drawn == [[0, 1, 0], [1, 3, 1], [1, 2, 2], [3, 4, 0]]
    assert axes.get_ylim() == (2.5, -0.5)  # the first row is on top


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=20))
def test_how_many_run_at_once_is_as_counted_at_every_nanosecond(ops):
    start, length = np.array(ops, dtype=np.int64).T
    edges = np.arange(start.min(), (start + length).max() + 1).astype(np.float64)
    counted = [((start <= time) & (time < start + length)).sum() for time in edges[:-1]]
    assert at_once(start, start + length, edges) == pytest.approx(np.array(counted))
    assert at_once(start, start + length, edges[[0, -1]]) * (edges[-1] - edges[0]) == pytest.approx(length.sum())


def test_the_same_graph_gives_the_same_bytes_and_other_endings_are_refused(diamond, tmp_path):
    graph, start, end = diamond
    for ending in FORMATS:
        pictures = []
        for name in ("first", "second"):
            write_graph_picture(tmp_path / f"{name}{ending}", graph, end - start)
            pictures.append((tmp_path / f"{name}{ending}").read_bytes())
        assert pictures[0] == pictures[1] and len(pictures[0]) > 1000
    with pytest.raises(ValueError, match=r"graph.gif: the ending is none of .png, .svg, .pdf"):
        write_graph_picture(tmp_path / "graph.gif", graph, end - start)


@pytest.mark.parametrize("name", ["$", "a$\\frac$", "$x$ y", "{}" * 30])
def test_names_are_drawn_as_they_are(tmp_path, name):
    graph = ComputationGraph.from_ops(name, [op("a", layer=name), op("b", layer=f"{name}/$\\b$")], [(0, 0, 1)])
    write_graph_picture(tmp_path / "graph.svg", graph, np.array([1, 2]) * MS)
    assert f"{name}: 2 ops" in (tmp_path / "graph.svg").read_text()


def test_powers_of_ten_on_an_axis_are_drawn_as_such_and_names_as_they_are(tmp_path):
    figure = Figure()
    numbers, names = figure.subplots(1, 2)
    numbers.plot([1, 2], [1, 10**5])
    numbers.set(yscale="log", title="$x$")
    names.barh(["$x$", "b"], [1, 2])
    save(figure, tmp_path / "powers.png")
    powers = [label for label in numbers.get_yticklabels() if "10^" in label.get_text()]
    assert powers and all(label.get_parse_math() for label in powers)
    assert not any(text.get_parse_math() for text in (numbers.title, *names.get_yticklabels()))
