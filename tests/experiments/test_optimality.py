"""The graphs of `experiments/optimality` are what they say, and its table counts proved problems alone."""

import numpy as np
import pytest

from experiments.optimality.graphs import DEVICES, OPS, RATIOS, Kind, drawn, kinds
from experiments.optimality.run import BEST, BOUND, LONGER, gaps, table


def test_every_size_is_there_on_every_machine_and_a_third_are_tight():
    found = kinds()
    assert len({kind.name for kind in found}) == len(found) == 3 * len(OPS) * len(DEVICES) * len(RATIOS) >= 60
    assert sum(kind.tight for kind in found) * 3 == len(found)
    assert {(kind.unequal, kind.tight) for kind in found} == {(a, b) for a in (False, True) for b in (False, True)}


@pytest.mark.parametrize("kind", kinds()[::7])
def test_graphs_are_layered_and_drawn_again_the_same(kind: Kind):
    posed, again = drawn(kind, 3), drawn(kind, 3)
    graph = posed.graph
    assert graph.sha256 == again.graph.sha256 != drawn(kind, 4).graph.sha256 and np.array_equal(posed.time_ns, again.time_ns)
    assert (posed.num_ops, posed.num_devices) == (kind.ops, kind.devices) and (graph.edge_src < graph.edge_dst).all()
    inputs = np.bincount(graph.edge_dst, minlength=kind.ops)
    height = round(np.sqrt(kind.ops) / kind.shape)
    depth = np.zeros(kind.ops, dtype=np.int64)
    for src, dst in sorted(zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True), key=lambda edge: edge[1]):
        depth[dst] = max(depth[dst], depth[src] + 1)
    assert depth.max() + 1 == height and (np.diff(depth) >= 0).all() and ((inputs > 0) == (depth > 0)).all()
    assert ((posed.time_ns == posed.time_ns[:, :1]).all()) != kind.unequal
    assert ((posed.cluster.memory_bytes < graph.persistent_bytes.sum() + graph.output_bytes.sum()).all()) == (
        kind.tight and kind.devices > 1
    )


def test_communication_is_as_much_as_it_says():
    for ratio in RATIOS:
        posed = [drawn(kind, seed) for seed in range(3) for kind in kinds() if kind.ratio == ratio]
        mean_bytes, mean_ns = (np.mean([column.mean() for column in columns]) for columns in (
            [made.graph.output_bytes for made in posed], [made.time_ns for made in posed]))  # fmt: skip
        assert mean_bytes / mean_ns == pytest.approx(ratio, rel=0.06)


def cell(best: int | None, optimum: int, proved: bool = True, simulated: int | None = None, **columns):
    kind = {"ops": 20, "devices": 2, "ratio": 1.0, "unequal": False, "tight": False} | columns
    return kind | {
        "times_ns": {BEST: best},
        "bound_ns": optimum // 2,
        "proved": proved,
        "program_bound_ns": optimum,
        "program_simulated_ns": simulated,
    }


def test_gaps_are_those_of_proved_problems():
    cells = [cell(110, 100), cell(100, 100, simulated=120), cell(300, 100, proved=False), cell(None, 100), cell(130, 100, simulated=104)]
    assert gaps(cells, BEST) == pytest.approx([0.1, 0.0, 0.3])
    assert gaps(cells, LONGER) == pytest.approx([0.1, 0.0, 0.04])
    assert gaps(cells, BOUND) == [-0.5] * 4


def test_the_table_says_how_many_are_proved_and_the_worst():
    text = table([cell(110, 100), cell(104, 100, ops=40), cell(300, 100, proved=False, ops=40)])
    rows = {line.split(" | ")[0].strip("| "): [part.strip(" |") for part in line.split(" | ")[1:]] for line in text.splitlines()[2:]}
    assert rows["*proved*"][3:7] == ["2 of 3", "1 of 1", "0 of 0", "1 of 2"]
    assert rows[BEST][0] == "2" and rows[BEST][2:7] == ["10.00 %", "7.00 %", "10.00 %", "-", "4.00 %"]
    assert rows[BOUND][2:4] == ["-50.00 %", "-50.00 %"]
