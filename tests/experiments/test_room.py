"""Room: which problems have some, how much of it was closed, and the cluster whose links are free."""

import pytest
from graphs import chains

from experiments.room.run import closed, has_room, room
from experiments.room.why import free
from gnnplace.corpus import clusters
from gnnplace.costs.roofline import problem


@pytest.mark.parametrize(
    ("heuristic", "best", "bound", "roomy", "share"),
    [
        (105, 100, 100, True, 1.0),
        (104, 102, 100, False, 0.5),
        (200, 175, 100, True, 0.25),
        (100, 100, 100, False, None),
        (None, None, 9, False, None),
    ],
)
def test_room_begins_at_1_05_times_the_bound(heuristic, best, bound, roomy, share):
    cell = {"heuristic_ns": heuristic, "best_ns": best, "bound_ns": bound}
    assert has_room(cell) == roomy and closed(cell) == share
    assert room(cell) == (None if heuristic is None else pytest.approx(1 - bound / heuristic))


def test_where_links_are_free_every_transfer_takes_a_nanosecond_and_all_else_is_as_it_was():
    graph, cluster = chains(2, 3, 2, size=10**9).graph, clusters.cluster("mixed-4")
    freed = free(cluster)
    before, after = problem(graph, cluster), problem(graph, freed)
    assert (after.transfer_ns == 1).all() and not freed.link_latency_ns.any() and before.transfer_ns.min() > 1
    assert freed.devices == cluster.devices and (freed.link_channel == cluster.link_channel).all()
    assert (after.time_ns == before.time_ns).all()
