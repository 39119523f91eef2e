"""The report of a step agrees with the simulator: bars, critical chain, memory, devices by module and time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.random_problems import random_case
from support.slow import slow

import gnnplace as gp
from gnnplace.placement import check
from gnnplace.report import layer_map, page
from gnnplace.report.chain_words import Step, stepped
from gnnplace.report.timeline_data import timeline_data


@pytest.fixture(scope="module", params=[range(40), slow(range(40, 300))], ids=str)
def steps(request: pytest.FixtureRequest) -> list[Step]:
    made = [(case.problem(), case.placement()) for case in map(random_case, request.param)]
    return [stepped(problem, placement) for problem, placement in made if check(problem, placement) is None]


def test_every_op_and_transfer_is_a_bar_and_bars_of_a_row_follow_one_another(steps: list[Step]):
    for step in steps:
        found = timeline_data(step)
        bars = list(zip(*found["bars"].values(), strict=True))
        ops = [(start, end, node) for _, start, end, node in bars if node < step.problem.num_ops]
        assert {node: (start, end) for start, end, node in ops} == dict(
            enumerate(zip(step.timeline.start_ns.tolist(), step.timeline.end_ns.tolist(), strict=True))
        )
        assert {node for *_, node in bars} == set(range(step.problem.num_ops + len(step.timeline.transfer_src)))
        for left, right in pairwise(bars):
            assert left[0] < right[0] or (left[0] == right[0] and left[2] <= right[1])


def test_rows_are_occupied_as_long_as_devices_and_channels(steps: list[Step]):
    some_received = 0
    for step in steps:
        found, cluster = timeline_data(step), step.problem.cluster
        length = dict.fromkeys((row["name"].partition(", stream")[0] for row in found["rows"]), 0)
        for row, start, end in zip(*(found["bars"][name] for name in ("row", "start_ns", "end_ns")), strict=True):
            length[found["rows"][row]["name"].partition(", stream")[0]] += end - start
        channels = [f"links out of {name}" if kind == "device" else f"channel {name}" for kind, name in cluster.channels]
        expected = dict(zip((*cluster.device_names, *channels), [*step.result.busy_ns.tolist(), *step.result.occupied_ns], strict=True))
        assert length == {name: time_ns for name, time_ns in expected.items() if time_ns or name in cluster.device_names}
        some_received += (step.timeline.receive_start_ns >= 0).any()
    assert some_received


def test_the_chain_leads_from_row_to_row_to_the_end_of_the_step(steps: list[Step]):
    for step in steps:
        found = timeline_data(step)
        chain, rows = found["chain"], set(zip(found["bars"]["node"], found["bars"]["row"], strict=True))
        assert set(zip(chain["node"], chain["row"], strict=True)) <= rows
        assert chain["start_ns"] == sorted(chain["start_ns"]) and step.timeline.end_ns[chain["node"][-1]] == found["step_ns"]


def test_memory_has_the_peak_of_the_simulator(steps: list[Step]):
    for step in steps:
        assert [max(device["bytes"]) for device in timeline_data(step)["memory"]] == step.result.peak_memory_bytes.tolist()


def test_every_op_is_in_one_cell_of_devices_by_module_and_time(steps: list[Step]):
    for step in steps:
        panels = layer_map.panels(step)
        assert (sum((panel.column >= 0).astype(int) for panel in panels) == 1).all()
        work = sum(layer_map.work_ns(step, panel).sum(axis=(0, 1)) for panel in panels)
        device = step.placement.device
        own = np.bincount(device, step.problem.time_ns[np.arange(len(device)), device], step.problem.num_devices)
        assert work.tolist() == own.tolist()


def test_an_unrolled_network_has_its_time_steps_as_columns():
    problem = gp.problem("rnnlm-2", cluster="k40-2")
    step = stepped(problem, gp.place(problem, "expert"))
    forward, backward, rest = layer_map.panels(step)
    assert forward.columns == backward.columns == tuple(map(str, range(len(forward.columns)))) and len(forward.columns) > 10
    assert "update" in rest.columns
    figure = layer_map.figure(step)
    heat = figure["data"][0]
    for module, row in enumerate(heat["z"]):
        for column, device in enumerate(row):
            ops = (step.modules.module == module) & (forward.column == column)
            assert device in (step.placement.device[ops] if ops.any() else [None])


def test_what_a_report_can_not_be_is_said_before_the_work(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"out\.pdf: a report is HTML; the ending is \.html"):
        page.check(tmp_path / "out.pdf")
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'out\.html: writing a report needs the package plotly: pip install "gnnplace\[report\]"'):
        page.check(tmp_path / "out.html")


def test_a_page_shows_no_mark_that_moves_text():
    made = page.table(("a\x07",), [("b\u202ec",)]) + page.facts([("d\r", "e\x9b")]) + page.note("f\ng")
    assert made.replace("\n<", "<").isprintable()
    assert r"<th>a\x07</th>" in made and r"<td>b\u202ec</td>" in made and r"<dt>d\r</dt><dd>e\x9b</dd>" in made


def test_tables_escape_what_they_show():
    assert page.table(("a", "b"), [("<script>", "1.5")]).count("<script>") == 0
    assert '<td class="number">1.5</td>' in page.table(("a", "b"), [("<script>", "1.5")])


@pytest.mark.parametrize(("rule", "several"), [("ddp", False), ("fsdp", True)])
def test_a_module_on_which_devices_work_alike_is_of_none_of_them(rule: str, several: bool):
    plan = gp.place(gp.problem("squeezenet", cluster="k40-2", micro_batches=2), rule)
    step = stepped(plan.problem, plan)
    drawn = layer_map.figure(step)
    forward = [row[0] for row in drawn["data"][0]["z"]]
    assert set(forward) == ({len(plan.problem.cluster.device_names)} if several else {1})
    assert (drawn["data"][-1]["name"] == layer_map.SEVERAL) == several
