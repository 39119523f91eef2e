"""The corpus in figures: every kind of work belongs to one part, and families sum up their graphs."""

from itertools import chain

import pytest

from experiments.corpus_stats.run import FAMILIES, HEADER, PARTS, family_line, figures, graph_line, rooms
from gnnplace.corpus import manifest
from gnnplace.graph import CANONICAL_KINDS


def test_every_canonical_kind_is_in_one_part():
    assert sorted(chain(*PARTS.values())) == sorted(CANONICAL_KINDS)


@pytest.mark.parametrize("name", ["gpt2", "resnet-50"])
def test_the_parts_of_a_graph_are_all_of_its_work(name):
    found = figures(manifest.entry(name))
    assert sum(found["parts"].values()) == pytest.approx(1) and found["parts"]["updates"] > 0
    assert found["parts"]["products" if name == "gpt2" else "convolutions"] > 0.5
    assert found["ops"] == manifest.entry(name).ops and found["levels"] <= found["ops"]
    assert found["parallelism"] == pytest.approx(found["work_ns"] / found["critical_path_ns"], abs=1e-3)


def test_a_family_is_the_range_of_its_graphs_and_the_rooms_of_all_of_them():
    parts = dict.fromkeys(PARTS, 0.0)
    members = [
        {"family": "f", "lineage": "l", "split": "train", "mode": "training", "ops": ops, "flops": 2 * 10**9, "persistent_bytes": 2**20,
         "levels": 7, "parallelism": width, "parts": parts | {"products": share, "updates": 1 - share}}
        for ops, width, share in ((1500, 1.5, 0.5), (10, 2.25, 1.0))
    ]  # fmt: skip
    measured = {
        name: {"heuristic_ns": heuristic, "bound_ns": 100} for name, heuristic in (("a/x", 200), ("b/x", 104), ("b/y", None), ("c/x", 999))
    }
    assert len(rooms(measured, ["a", "b"])) == 3
    line = dict(zip(FAMILIES, family_line("f", members, rooms(measured, ["a", "b"])), strict=True))
    assert [line[column] for column in ("graphs", "ops", "width", "with room", "room, median")] == [
        "2",
        "10 - 1,500",
        "1.50 - 2.25",
        "1 of 3",
        "27 %",
    ]
    assert (line["products"], line["updates"], line["movement"]) == ("75 %", "25 %", "0 %")
    own = dict(zip(HEADER, graph_line("a", members[0], rooms(measured, ["a"])), strict=True))
    assert [own[column] for column in ("ops", "GFLOP", "memory, MiB", "width", "with room", "room, median")] == [
        "1,500",
        "2",
        "1",
        "1.50",
        "1 of 1",
        "50 %",
    ]
    assert graph_line("d", members[0], [])[-2:] == ["-", "-"]
