"""The picture of a step shows the simulated device, time and phase of each op."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from support.graphs import equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.report.picture import FORMATS, draw, write_picture
from gnnplace.simulator.simulator import simulate


def corners(collection):
    """Left, right, bottom and top of every bar."""
    return [[*path.vertices[:, 0][[0, 1]], *path.vertices[:, 1][[0, 2]]] for path in collection.get_paths()]


@pytest.fixture
def step():
    """a (forward, 2 ms) on gpu:0 sends 10^6 bytes, at 1 a nanosecond, to b (update, 3 ms) on gpu:1."""
    ops = [
        Op("a", "Op", (Output(10**6),), time_ns={"gpu": 2 * 10**6}, phase="forward"),
        Op("b", "Op", time_ns={"gpu": 3 * 10**6}, phase="update"),
    ]
    return problem(ComputationGraph.from_ops("pair", ops, [(0, 0, 1)]), equal_gpus(2)), Placement(np.array([0, 1], np.int32))


def test_bars_are_the_ops_and_transfers(step):
    made, placement = step
    (result,) = simulate(made, [placement], timeline=True)
    axes = Figure().add_subplot()
    draw(axes, made, placement, result.timeline)
    drawn = [bar for collection in axes.collections for bar in corners(collection)]
    assert drawn == pytest.approx(np.array([[0, 2, -0.4, 0.25], [3, 6, 0.6, 1.25], [2, 3, 0.27, 0.4]]))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["forward", "update", "transfers"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["gpu:0", "gpu:1"]


def test_a_device_that_receives_has_a_bar_of_it(step):
    made, placement = step
    links = tuple(replace(link, receive_channel=link.dst) for link in made.cluster.links)
    (result,) = simulate(problem(made.graph, replace(made.cluster, links=links)), [placement], timeline=True)
    axes = Figure().add_subplot()
    draw(axes, made, placement, result.timeline)
    assert corners(axes.collections[-1]) == pytest.approx(np.array([[2, 3, 0.27, 0.4], [3, 4, 1.27, 1.4]]))


def test_the_same_step_gives_the_same_bytes(step, tmp_path):
    made, placement = step
    (result,) = simulate(made, [placement], timeline=True)
    for ending in FORMATS:
        pictures = []
        for name in ("first", "second"):
            write_picture(tmp_path / f"{name}{ending}", made, placement, result)
            pictures.append((tmp_path / f"{name}{ending}").read_bytes())
        assert pictures[0] == pictures[1] and len(pictures[0]) > 1000


def test_nothing_is_drawn_without_a_timeline(step, tmp_path):
    made, placement = step
    (result,) = simulate(made, [placement])
    with pytest.raises(ValueError, match="nothing to draw: simulated without a timeline"):
        write_picture(tmp_path / "step.png", made, placement, result)
    assert not list(tmp_path.iterdir())
