"""The table of a placement's layers: every nanosecond and byte is in it once, and it stays short."""

from __future__ import annotations

import numpy as np
from support.graphs import equal_gpus

import gnnplace as gp
from gnnplace.baselines.data_parallel.ddp import ddp
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.portfolio.planners import PIPELINES
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.placement_table import MOST_ROWS, _labels, beside_one_device, in_words, layer_rows
from gnnplace.simulator.simulator import simulate


def chain(layers: list[str | None], kind: str = "MatMul") -> Problem:
    ops = [Op(f"op{i}", kind, (Output(8),), layer=layer, time_ns={"gpu": 10 + i}, persistent_bytes=i) for i, layer in enumerate(layers)]
    return problem(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(len(ops) - 1)]), equal_gpus(2))


def placed(problem: Problem, device: list[int]) -> list[tuple[str, list[int], int]]:
    rows = layer_rows(problem, Placement(np.array(device, dtype=np.int32)))
    return [(row.name, row.work_ns.tolist(), row.persistent_bytes) for row in rows]


def test_layers_stand_in_their_order_with_their_work_and_variables():
    found = placed(chain(["encoder.0", "decoder/a", "encoder.0", None]), [0, 1, 1, 0])
    assert found == [("encoder/0", [10, 12], 2), ("decoder/a", [0, 11], 1), ("(MatMul)", [13, 0], 3)]


def test_a_slash_in_a_name_of_pytorch_separates_nothing():
    layers = ["net.0.de/low.a", "net.0.de/high.a"]
    assert _labels(chain(layers, "aten.mm").graph, 3) == ["net/0/de/low", "net/0/de/high"]
    assert _labels(chain(layers, "MatMul").graph, 3) == ["net/0/de", "net/0/de"]


def test_many_layers_are_shortened_and_neighbours_on_one_device_joined():
    layers = [f"h.{block}.{part}" for block in range(24) for part in ("attention", "mlp")]
    device = [0 if block < 12 else 1 for block in range(24) for _ in range(2)]
    found = placed(chain(layers), device)
    assert [name for name, _, _ in found] == ["h/0/attention ... h/11/mlp", "h/12/attention ... h/23/mlp"]
    mixed = placed(chain(layers), [number % 2 for number in range(48)])
    assert len(mixed) == 24 and mixed[0][:2] == ("h/0", [10, 11])


def test_what_does_not_fit_is_in_one_row_and_nothing_is_lost():
    layers, device = [f"layer_{number}" for number in range(90)], [number % 2 for number in range(90)]
    found = placed(chain(layers), device)
    assert len(found) == MOST_ROWS and found[-1][0] == "others" and found[0][0] == "layer_89"
    assert np.sum([work for _, work, _ in found]) == sum(10 + i for i in range(90)) and sum(held for _, _, held in found) == sum(range(90))


def test_a_placement_is_compared_with_the_fastest_device_alone():
    of = chain(["a", "b"])
    assert beside_one_device(of, Placement(np.array([1, 1], np.int32)), 21) == "0.000 ms on gpu:0, as long as this placement"
    assert beside_one_device(of, Placement(np.array([0, 1], np.int32)), 42).endswith("takes 100.0 % more, so prefer that device")
    assert beside_one_device(of, Placement(np.array([0, 1], np.int32)), 14).endswith("takes 33.3 % less")


def test_a_bound_that_is_reached_says_that_no_placement_is_faster():
    assert terminal.bounded(2_000_000, "paths", 0.0) == "2.000 ms (paths), reached: no placement is faster"
    assert terminal.bounded(2_000_000, "paths", 0.25).endswith("still gain 25.0 % at most")


def test_replicas_are_named_by_their_devices():
    posed = gp.problem("squeezenet", "k40-2", micro_batches=2)
    replicated = ddp(posed, simulate)
    assert in_words(*replicated) == "stages: the whole network, a replica on each of gpu:0, gpu:1"
    pipeline = PIPELINES["1f1b"](posed, simulate)
    assert "replica" not in in_words(posed, pipeline)
