"""Every target writes what the placement and the simulator say, in the format of its program, or one line of why it can't."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from collections import defaultdict
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from support.random_problems import random_case

import gnnplace as gp
from gnnplace.complaints import printable
from gnnplace.exports.chrome_trace import chrome_trace
from gnnplace.exports.device_map import device_map
from gnnplace.exports.targets import as_exported, exported
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import UnsayableError
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules


@cache
def stepping_cases() -> list[tuple[Problem, Placement]]:
    made = [(case.problem(), case.placement()) for case in map(random_case, range(50))]
    return [(problem, placement) for problem, placement in made if check(problem, placement) is None]


def test_the_trace_has_every_op_and_transfer_once_and_no_track_overlaps():
    for problem, placement in stepping_cases():
        (result,) = simulate(problem, [placement], timeline=True)
        assert result.timeline is not None and result.occupied_ns is not None
        events = json.loads(chrome_trace(problem, placement))["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        ops = [event for event in slices if event["cat"] != "transfer"]
        assert [event["name"] for event in ops] == list(problem.graph.op_names)
        assert [round(event["ts"] * 1e3) for event in ops] == result.timeline.start_ns.tolist()
        busy, tracks = defaultdict(int), defaultdict(list)
        for event in slices:
            start, length = round(event["ts"] * 1e3), round(event["dur"] * 1e3)
            busy[event["pid"]] += length
            tracks[event["pid"], event["tid"]].append((start, start + length))
        expected = [*result.busy_ns.tolist(), *result.occupied_ns.tolist()]
        assert [busy[pid] for pid in range(len(expected))] == expected
        for spans in tracks.values():
            spans.sort()
            assert all(left[1] <= right[0] for left, right in pairwise(spans))


def test_arrows_of_the_trace_join_slices_and_end_with_the_last_op():
    drawn = 0
    for problem, placement in stepping_cases():
        events = json.loads(chrome_trace(problem, placement))["traceEvents"]
        starts = {(event["pid"], event["tid"], event["ts"]) for event in events if event["ph"] == "X"}
        arrows = [event for event in events if event["ph"] in "sf"]
        assert all((event["pid"], event["tid"], event["ts"]) in starts for event in arrows)
        assert all(start["id"] == end["id"] and start["ts"] <= end["ts"] for start, end in zip(arrows[::2], arrows[1::2], strict=True))
        drawn += len(arrows)
    assert drawn > 100


def test_the_memory_of_the_trace_peaks_where_the_simulator_says_and_ends_with_what_stays():
    for problem, placement in stepping_cases():
        (result,) = simulate(problem, [placement])
        counters = [event for event in json.loads(chrome_trace(problem, placement))["traceEvents"] if event["ph"] == "C"]
        used = defaultdict(list)
        for event in counters:
            used[event["pid"]].append(event["args"]["bytes"])
        assert result.peak_memory_bytes is not None
        assert [max(used[device]) for device in range(problem.num_devices)] == result.peak_memory_bytes.tolist()
        held = np.bincount(placement.device, problem.graph.persistent_bytes, problem.num_devices)
        assert [used[device][-1] for device in range(problem.num_devices)] == held.tolist()


def test_node_link_json_is_read_back_by_networkx():
    for problem, placement in stepping_cases()[:10]:
        found = nx.node_link_graph(json.loads(exported(problem, placement, "networkx")), edges="edges")
        (result,) = simulate(problem, [placement], timeline=True)
        assert list(found.nodes) == list(problem.graph.op_names) and found.number_of_edges() == problem.graph.num_edges
        assert [start for _, start in found.nodes(data="start_ns")] == result.timeline.start_ns.tolist()


def test_graphml_is_read_back_with_every_op_edge_and_time():
    for problem, placement in stepping_cases()[:10]:
        (result,) = simulate(problem, [placement], timeline=True)
        assert result.timeline is not None
        found = nx.read_graphml(io.BytesIO(exported(problem, placement, "graphml").encode()), force_multigraph=True)
        assert list(found.nodes) == list(problem.graph.op_names) and found.number_of_edges() == problem.graph.num_edges
        names = problem.cluster.device_names
        assert [device for _, device in found.nodes(data="device")] == [names[device] for device in placement.device]
        assert [end for _, end in found.nodes(data="end_ns")] == result.timeline.end_ns.tolist()


def test_dot_quotes_names_and_has_every_op_and_edge():
    problem, placement = next((problem, placement) for problem, placement in stepping_cases() if problem.graph.num_edges > 5)
    lines = exported(problem, placement, "dot").splitlines()
    assert (
        sum("fillcolor" in line for line in lines) == problem.num_ops and sum(" -> " in line for line in lines) == problem.graph.num_edges
    )
    graph = gp.ComputationGraph.from_ops('a "b"', [gp.Op("x\\n", "Op", (), flops=1)], [])
    quoted = exported(gp.problem(graph, "k40-2"), Placement(np.zeros(1, dtype=np.int32)), "dot")
    assert quoted.startswith('digraph "a \\"b\\"" {') and '"x\\\\n" [' in quoted


HOSTILE = (
    "a\x1bb",
    "a\\x1bb",
    "a\\u001bb",
    "a&lt;b",
    "a<b",
    "<b>b</b>",
    "two\nlines",
    "two\\nlines",
    "\\N",
    "end\\",
    "\u202eb",
    "\x9b",
    '"',
)


def named(*names):
    """A graph of ops with these names on one device, and its placement."""
    graph = gp.ComputationGraph.from_ops("g", [gp.Op(name, name, (), flops=1) for name in names], [])
    return gp.problem(graph, "k40-2"), Placement(np.zeros(len(names), dtype=np.int32))


def test_dot_shows_names_as_they_are_and_keeps_them_apart():
    text = exported(*named(*HOSTILE), "dot")
    lines = [line for line in text.splitlines() if "tooltip" in line]
    assert text.replace("\n", "").isprintable() and len({line.partition(" [")[0] for line in lines}) == len(HOSTILE) == len(lines)
    assert '"a\\u001bb" [' in lines[0] and lines[0].endswith('label="a\\\\x1bb"];')
    assert lines[3].endswith('label="a&amp;lt;b"];') and "label" not in lines[4] + lines[5]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz: apt-get install graphviz")
def test_graphviz_shows_what_dot_says():
    drawn = subprocess.run(["dot", "-Tsvg"], input=exported(*named(*HOSTILE), "dot"), capture_output=True, text=True, check=True).stdout
    shown = [each.text for each in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert shown == [printable(name) for name in HOSTILE]


@pytest.mark.parametrize("name", ["a\x1bb", "\x00", "a\ufffe", "a\r"])
def test_graphml_refuses_a_name_that_xml_lacks(name):
    with pytest.raises(UnsayableError, match=r"^graphml: 'a?\\[^\\]*': XML can't hold a character of this name; --to networkx can$"):
        exported(*named("b", name), "graphml")


def test_graphml_keeps_every_name_that_xml_has():
    names = ("a&lt;b", "<b>", "two\nlines", "\t", "\x85\u202e", '"')
    assert tuple(nx.read_graphml(io.BytesIO(exported(*named(*names), "graphml").encode()))) == names


def test_a_device_map_covers_every_module_and_refuses_split_ones():
    problem = gp.problem("squeezenet", cluster="mixed-4")
    found, accelerators = modules(problem.graph), [1, 2, 3, 4]
    assert [problem.cluster.devices[device].kind for device in accelerators] == ["gpu"] * 4
    layer = np.maximum.accumulate([int([*name.split("."), "0"][1]) for name in found.names])  # a whole one each
    cut = np.searchsorted([2, 4, 7], layer, side="right")
    with pytest.warns(UserWarning, match="not tried"):
        made = device_map(problem, Placement(np.array(accelerators, dtype=np.int32)[cut][found.module]))
    around = {name: [key for key in made if f"{name}.".startswith(f"{key}.")] for name in found.names}
    assert all(len(keys) == 1 and made[keys[0]] == cut[number] for number, keys in enumerate(around.values()))
    with pytest.raises(ValueError, match=r"split a module, .* and \d+ more stand on several devices; place with --granularity module$"):
        device_map(problem, Placement(np.arange(problem.num_ops, dtype=np.int32) % problem.num_devices))


@pytest.mark.parametrize("name", ["inception-v3-inference", "two-tower-inference"])
def test_the_step_as_the_program_runs_it_is_said_beside_the_planned_one(name):
    problem = gp.problem(name, cluster="k40-2")
    plan, alone = gp.place(problem, "heft"), gp.place(problem, "gpu")
    for to in ("onnxruntime", "accelerate"):
        said = as_exported(problem, plan, to)
        run, planned, one = (float(part) for part in re.findall(r"([\d.,]+) ms", said))
        assert planned == round(plan.step.step_time_ns / 1e6, 3) and one == round(alone.step.step_time_ns / 1e6, 3)
        assert run >= plan.step.busy_ns.sum() / 1e6 > planned and said.endswith(f"plan it with --for {to}")
        assert as_exported(problem, alone, to) is None


def test_a_plan_for_another_program_is_refused_with_the_command_that_makes_one():
    problem = gp.problem("squeezenet", cluster="k40-2", runtime="accelerate")
    with pytest.raises(
        ValueError, match="tensorflow: the placement was made for accelerate; make one with gnnplace place --for tensorflow"
    ):
        exported(problem, gp.place(problem, "gpu"), "tensorflow")
