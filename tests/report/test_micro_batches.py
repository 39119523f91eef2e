"""Reports of steps of several micro-batches: hues, passes with a number, memory by owner, micro-batches in flight, the header."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.equal_stages import equal_stages

import gnnplace as gp
from gnnplace.exports.chrome_trace import chrome_trace
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.report import layer_map, memory_in_flight, step_words
from gnnplace.report.chain_words import Step, Stretch, shortened, stepped
from gnnplace.report.explanation import Explanation, chain_table, explain
from gnnplace.report.micro_batch_colours import ADDED, ONCE, coloured_copies, owners, passes
from gnnplace.report.timeline_data import timeline_data
from gnnplace.schedules.device_use import in_flight
from gnnplace.simulator.simulator import simulate

STEPS = {
    "pipeline": ({"micro_batches": 6}, "1f1b"),
    "replicas": ({"micro_batches": 4}, "ddp"),
    "fetched": ({"micro_batches": 2, "copies": "fetched"}, "heft"),
}


@pytest.fixture(scope="module", params=STEPS)
def step(request: pytest.FixtureRequest) -> Step:
    parallelism, planner = STEPS[request.param]
    plan = gp.place(gp.problem("squeezenet", "k40-2", **parallelism), planner)
    return stepped(plan.problem, plan)


def staged(planner: str, devices: int = 4, stages: int = 4, copies: int = 8) -> Step:
    problem = equal_stages(devices, stages, copies)
    return stepped(problem, gp.place(problem, planner))


def test_every_op_has_one_colour_and_a_hue_of_its_micro_batch(step: Step):
    graph, drawn = step.problem.graph, coloured_copies(step.problem.graph)
    assert (sum(each.ops.astype(int) for each in drawn) == 1).all()
    assert len({each.colour for each in drawn}) == len(drawn)
    copies = graph.copies
    for each in drawn:
        added = copies.added & ~graph.canonical_kind.among(["variable"])
        alone = {ONCE[0]: (copies.micro_batch == NONE) & ~added, ADDED[0]: added}
        expected = alone[each.name] if each.name in alone else (copies.micro_batch == int(each.name)) & ~added
        assert (expected | ~each.ops).all()


def test_many_micro_batches_share_hues():
    names, colours, of = owners(equal_stages(1, 1, 40).graph)
    assert names[:3] == ("0–2", "3–4", "5–7") and names[15] == "38–39" and len(set(colours)) == len(colours) == 18
    assert set(of.tolist()) == set(range(18))


def test_passes_cover_the_work_of_micro_batches(step: Step):
    graph, device, timeline = step.problem.graph, step.placement.device, step.timeline
    found, backward = passes(graph, device, timeline), graph.phase.among(["backward_data", "backward_weight"])
    copies = graph.copies
    for op in np.flatnonzero((copies.micro_batch != NONE) & ~copies.added & (timeline.end_ns > timeline.start_ns)):
        within = (found.start_ns <= timeline.start_ns[op]) & (timeline.end_ns[op] <= found.end_ns)
        within &= (found.row == device[op]) & (found.number == copies.micro_batch[op]) & (found.backward == backward[op])
        assert within.sum() == 1


def test_a_pipeline_has_its_passes_in_order():
    step = staged("1f1b")
    found = passes(step.problem.graph, step.placement.device, step.timeline)
    assert list(zip(found.number[:6].tolist(), found.backward[:6].tolist(), strict=True)) == [
        (0, False), (1, False), (2, False), (3, False), (0, True), (4, False),
    ]  # fmt: skip
    assert len(found.row) == 4 * 8 * 2


def test_a_step_without_work_of_micro_batches_has_no_passes():
    step = staged("1f1b", 1, 1, 2)
    idle = replace(step.timeline, start_ns=np.zeros_like(step.timeline.start_ns), end_ns=np.zeros_like(step.timeline.end_ns))
    assert all(len(column) == 0 for column in passes(step.problem.graph, step.placement.device, idle))


@pytest.mark.parametrize(("planner", "expected"), [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])])
def test_as_many_are_in_flight_as_the_papers_say(planner, expected):
    step = staged(planner)
    assert in_flight(step.problem, step.placement.device, step.timeline) == expected


def test_owners_hold_together_what_a_device_holds(step: Step):
    for use, shown, peak in zip(memory_in_flight.holdings(step), timeline_data(step)["memory"], step.result.peak_memory_bytes, strict=True):
        assert use.time_ns.tolist() == shown["time_ns"][:-1] and use.bytes.sum(axis=0).tolist() == shown["bytes"][:-1]
        assert (use.bytes >= 0).all() and use.bytes.sum(axis=0).max() == peak


def test_state_lies_beneath_and_activations_are_those_of_their_micro_batch():
    step = staged("1f1b", 1, 1, 2)
    (use,) = memory_in_flight.holdings(step)
    assert use.bytes[2].min() >= step.problem.graph.persistent_bytes.sum()
    first, second = (set(use.time_ns[use.bytes[owner] >= 10**6].tolist()) for owner in (0, 1))
    assert first and second and not first & second


def test_summed_gradients_are_no_micro_batch_s():
    step = staged("gpipe", 1, 1, 2)
    (use,) = memory_in_flight.holdings(step)
    end = np.searchsorted(use.time_ns, step.timeline.start_ns[step.problem.graph.op_names.index("update.0")])
    assert use.bytes[:, end].tolist() == [0, 0, 16, 16]


def test_the_figure_keeps_the_peak_of_each_device(step: Step):
    figure, names = memory_in_flight.figure(step), owners(step.problem.graph).names
    peaks = [peak for peak in step.result.peak_memory_bytes.tolist() if peak]
    panels = [figure["data"][first : first + len(names)] for first in range(0, len(figure["data"]), len(names))]
    drawn = [max(np.sum([area["y"] for area in panel], axis=0)) for panel in panels]
    assert drawn == pytest.approx([peak / 2**20 for peak in peaks], abs=0.01)
    assert [area["showlegend"] for area in figure["data"]] == [True] * len(names) + [False] * len(names) * (len(panels) - 1)


def test_no_module_of_a_replica_on_one_device_is_said_to_be_better_elsewhere():
    plan = gp.place(gp.problem("squeezenet", "k40-2", micro_batches=3), "ddp")
    assert plan.problem.graph.copies.placed == "whole" and explain(plan.problem, plan).moves == ()


def test_the_chain_and_the_trace_name_micro_batches(step: Step):
    graph, copies = step.problem.graph, step.problem.graph.copies
    chain = step.waits.op[step.waits.chain(int(step.timeline.end_ns.argmax()))]
    expected = {each for each in copies.micro_batch[chain].tolist() if each != NONE}
    explained = explain(step.problem, step.placement)
    assert {each for part in explained.chain for each in part.micro_batches} == expected
    header, rows = chain_table(explained, graph)
    assert header[4] == "micro-batch" and all(len(row) == len(header) for row in rows)
    assert [row[4] == "-" for row in rows] == [not part.micro_batches for part in explained.chain]
    events = json.loads(chrome_trace(step.problem, step.placement))["traceEvents"]
    ops = [event["args"] for event in events if event["ph"] == "X" and event["cat"] != "transfer"]
    assert [each.get("micro_batch", NONE) for each in ops] == copies.micro_batch.tolist()


def test_rows_of_the_chain_join_their_micro_batches():
    parts = shortened([Stretch(i, i + 1, "gpu:0", "step of a", 1, "b ended", (i % 3,)) for i in range(200)])
    assert [part.micro_batches for part in parts] == [(0, 1, 2)]
    explained = Explanation(200, (*parts, Stretch(0, 1, "gpu:1", "step of a", 1, "b ended")), {}, (), ())
    assert [row[4] for row in chain_table(explained, equal_stages(1, 1, 3).graph)[1]] == ["0 ... 2", "-"]


def test_devices_by_module_have_a_row_a_module_and_a_column_for_each_replica():
    problem = gp.problem("squeezenet", "k40-2", micro_batches=4, replicas=2, copies="whole")
    step = stepped(problem, gp.place(problem, lambda problem: gp.Placement((1 + problem.graph.copies.replica).astype(np.int32))))
    (panel,), names = layer_map.panels(step), gp.modules(problem.graph.original).names
    assert panel.columns[:2] == ("forward @r0", "forward @r1")
    work = layer_map.work_ns(step, panel)
    assert work.shape[:2] == (len(names), len(panel.columns)) and work[:, 0::2, 2].max() == work[:, 1::2, 1].max() == 0
    assert work.sum(axis=(0, 1)).tolist() == step.result.busy_ns.tolist()
    assert layer_map.figure(step)["layout"]["yaxis"]["ticktext"][0] == names[0]


def test_words_of_copies():
    problem = gp.problem("squeezenet", "k40-2", micro_batches=3, shares=(1, 2))
    words = step_words.copies(problem.graph)
    expected = {"micro-batch 0, replica 0", "micro-batch 2, replica 1", "once a step, replica 1", "added to the step, replica 0"}
    assert expected <= set(words.values)
    assert step_words.parts(problem.graph) == [("3", "micro-batches, copies together"), ("2", "replicas, of 1, 2 micro-batches")]
    two = gp.problem("squeezenet", "k40-2", micro_batches=3, shares=(1, 2), family_shares={"layers.6": (0, 3), "layers.7": (0, 3)})
    assert step_words.parts(two.graph)[2:] == [("0, 3", "micro-batches on the replicas in layers.6 and 1 more")]
    nodes = gp.problem("squeezenet", "k40-4", micro_batches=4, replicas=4, ring_size=2)
    assert step_words.parts(nodes.graph)[1] == ("4", "replicas, of 1, 1, 1, 1 micro-batches, in rings of 2")


def written(problem: Problem, path: Path) -> str:
    pytest.importorskip("plotly", reason="needs gnnplace[report]")
    gp.write_report(problem, gp.place(problem, "heft"), path / "page.html")
    page = (path / "page.html").read_text()
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_a_page_says_what_a_step_of_several_is(tmp_path: Path):
    page = written(gp.problem("squeezenet", "k40-2", micro_batches=3), tmp_path)
    assert "<b>3</b><span>micro-batches, copies together</span>" in page
    for part in ('<option value="copy">', 'id="in_flight"', "most in flight", '"copies":{'):
        assert part in page


def test_requests_are_called_so(tmp_path: Path):
    page = written(gp.problem("resnet-50-inference", "k40-2", micro_batches=2), tmp_path)
    assert "What each request holds" in page and '<option value="copy">requests</option>' in page
    for part in ("micro-batch", "darker", "sums, rings, fetches"):
        assert part not in page


def test_a_page_of_one_micro_batch_speaks_of_none(tmp_path: Path):
    page = written(gp.problem("squeezenet", "k40-2"), tmp_path)
    for part in ("micro-batch", 'value="copy"', "in_flight", "in flight", '"copies"', "replica"):
        assert part not in page


def test_a_picture_has_the_number_of_each_pass():
    from matplotlib.figure import Figure

    from gnnplace.report.picture import draw

    step = staged("1f1b", 2, 2, 3)
    (result,) = simulate(step.problem, [step.placement], timeline=True)
    axes = Figure().add_subplot()
    draw(axes, step.problem, step.placement, result.timeline)
    assert [text.get_text() for text in axes.texts[:6]] == ["0", "1", "0", "2", "1", "2"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*(ONCE[0], ADDED[0]), "transfers"]
