"""Where what arrives lies: with all of its root, with all that is whole of it, or by itself; worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made, step

from gnnplace.cluster import Cluster, ClusterError
from gnnplace.graph import Op, Output
from gnnplace.schedules.buffers import buffers


def receiving(how: str | None) -> Cluster:
    """GPUs, of which two are linked both ways without latency."""
    cluster = gpus(link(0, 1), link(1, 0))
    return replace(cluster, devices=tuple(replace(device, received=how) for device in cluster.devices))


def op(name: str, *outputs: Output) -> Op:
    return Op(name, "Op", outputs, time_ns={"gpu": 10})


def peaks(how: str | None, ops: list[Op], edges: list[tuple[int, int, int]], *device: int) -> list[int]:
    result = step(made(ops, edges, receiving(how)), *device)
    assert result.peak_memory_bytes is not None
    return result.peak_memory_bytes.tolist()[:2]


THIRDS = [op("x", Output(9)), op("split", *(Output(3, alias_of=(0, 0)) for _ in range(3))), op("sum")]
THIRDS_EDGES = [(0, 0, 1), (1, 0, 2), (1, 1, 2), (1, 2, 2)]


@pytest.mark.parametrize(("how", "there"), [(None, 3), ("parts", 9), ("outputs", 9)])
def test_parts_of_one_root(how, there):
    assert peaks(how, THIRDS, THIRDS_EDGES, 0, 0, 1) == [9, there]


@pytest.mark.parametrize(("how", "there"), [(None, 9), ("parts", 9), ("outputs", 18)])
def test_a_root_and_a_whole_view_of_it(how, there):
    ops = [op("weight", Output(9)), op("transposed", Output(9, alias_of=(0, 0))), op("product")]
    assert peaks(how, ops, [(0, 0, 1), (0, 0, 2), (1, 0, 2)], 0, 0, 1) == [9, there]


@pytest.mark.parametrize(("how", "there"), [(None, 12), ("parts", 9), ("outputs", 9)])
def test_a_part_goes_when_its_last_user_ends(how, there):
    # there: a part is used, then 9 bytes are made, for which the other part waits
    one, two = (op(name, Output(3, alias_of=(0, 0))) for name in ("one", "two"))
    ops = [op("x", Output(9)), one, op("use"), op("more", Output(9)), two, op("end")]
    edges = [(0, 0, 1), (1, 0, 2), (2, -1, 3), (3, 0, 4), (0, 0, 4), (4, 0, 5)]
    assert peaks(how, ops, edges, 0, 0, 1, 1, 0, 1)[1] == there


@pytest.mark.parametrize(("how", "there"), [(None, 9), ("parts", 9), ("outputs", 9)])
def test_a_view_that_is_made_there_lies_in_what_was_received(how, there):
    ops = [op("x", Output(9)), op("view", Output(3, alias_of=(0, 0))), op("use")]
    assert peaks(how, ops, [(0, 0, 1), (1, 0, 2)], 0, 1, 1) == [9, there]


@pytest.mark.parametrize(("how", "here"), [(None, 9), ("parts", 9), ("outputs", 18)])
def test_what_comes_back_whole(how, here):
    # here x is held by its last user, which waits for the view that comes back
    ops = [op("x", Output(9)), op("view", Output(9, alias_of=(0, 0))), op("use")]
    assert peaks(how, ops, [(0, 0, 1), (1, 0, 2), (0, 0, 2)], 0, 1, 0) == [here, 9]


def test_results_are_held_where_they_lie():
    ops = [op("x", Output(9)), op("view", Output(3, alias_of=(0, 0), is_result=True)), op("after", Output(20))]
    edges = [(0, 0, 1), (1, -1, 2)]
    assert [peaks(how, ops, edges, 0, 1, 1)[1] for how in (None, "parts", "outputs")] == [29, 29, 29]


def test_aliases_come_after_what_they_name():
    ops = [op("b", Output(1, alias_of=(2, 0))), op("a", Output(4)), op("c", Output(2, alias_of=(1, 0)))]
    held = buffers(made(ops, [(1, 0, 2), (2, 0, 0)], receiving("parts")).graph, apart=True)
    assert (held.alias.tolist(), held.alias_of.tolist()) == ([2, 0], [1, 2])
    assert np.array_equal(held.output_part, [0, 1, 2])


def test_the_word_is_checked():
    with pytest.raises(ClusterError, match=r"devices\[0\]\.received: 'apart' is neither 'parts' nor 'outputs'"):
        receiving("apart")
