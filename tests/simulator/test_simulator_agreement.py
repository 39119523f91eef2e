"""The simulator agrees, to the nanosecond and the byte, with given test vectors and with a second, plain implementation."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.differences import differences
from support.plain_simulator import PlainSimulator
from support.random_problems import Case, random_case
from support.slow import slow, thorough

from gnnplace.costs import roofline
from gnnplace.formats.clusters import cluster_of
from gnnplace.formats.graphs import graph_of
from gnnplace.formats.placements import read_placement
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate

GOLDEN = Path(__file__).parents[1] / "golden"
VECTORS = [vector for path in sorted(GOLDEN.glob("vectors-*.json")) for vector in json.loads(path.read_text())]
NUM_RANDOM = 3200


def whole(document: dict) -> dict:
    """The vectors write some rates as 1e12."""
    return json.loads(json.dumps(document), parse_float=lambda text: int(float(text)))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["graph"]["name"])
def test_vector(vector: dict) -> None:
    problem = roofline.problem(graph_of(vector["graph"]), cluster_of(whole(vector["cluster"])))
    placement = read_placement(json.dumps(vector["placement"]).encode(), problem.graph, problem.cluster)
    (result,) = simulate(problem, [placement])
    names = problem.cluster.device_names
    assert result.peak_memory_bytes is not None
    assert vector["expected"] == {
        "step_time_ns": result.step_time_ns,
        "feasible": result.infeasible is None,
        "peak_memory_bytes": dict(zip(names, result.peak_memory_bytes.tolist(), strict=True)),
        "busy_ns": dict(zip(names, result.busy_ns.tolist(), strict=True)),
    }


@pytest.mark.parametrize("vector", VECTORS[::4], ids=lambda vector: vector["graph"]["name"])
def test_plain_simulator_agrees_with_vectors(vector: dict) -> None:
    names = [device["name"] for device in vector["cluster"]["devices"]]
    device = [names.index(vector["placement"]["device"][op["name"]]) for op in vector["graph"]["ops"]]
    priority = vector["placement"]["priority"]
    given = None if priority is None else [priority[op["name"]] for op in vector["graph"]["ops"]]
    plain = PlainSimulator(vector["graph"], vector["cluster"], device, vector["placement"]["schedule"], given).run()
    assert vector["expected"] == {
        "step_time_ns": plain.step_time_ns,
        "feasible": plain.memory_fits,
        "peak_memory_bytes": dict(zip(names, plain.peak_memory_bytes or [], strict=True)),
        "busy_ns": dict(zip(names, plain.busy_ns, strict=True)),
    }


def change_the_step(column: str, case: Case, result: StepResult) -> bool:
    """Whether the step takes another time where engines copy what devices copy by themselves, as channels of this column."""
    engine = {device["name"]: f"engine of {device['name']}" for device in case.cluster["devices"]}
    links = [link | {column: engine.get(link.get(column), link.get(column))} for link in case.cluster["links"]]
    (with_engines,) = simulate(replace(case, cluster=case.cluster | {"links": links}).problem(), [case.placement()])
    return with_engines.step_time_ns != result.step_time_ns


def contention_changes_the_step(case: Case, result: StepResult) -> bool:
    """Whether the step takes another time where each device has a memory of its own."""
    devices = [{key: value for key, value in device.items() if key != "memory"} for device in case.cluster["devices"]]
    (alone,) = simulate(replace(case, cluster=case.cluster | {"devices": devices}).problem(), [case.placement()])
    return alone.step_time_ns != result.step_time_ns


@pytest.mark.parametrize("block", range(8))
def test_random_problems(block: int) -> None:
    """A hundred of the problems that are compared in all."""
    first = block * NUM_RANDOM // 8
    for seed in range(first, first + 12):
        case = random_case(seed)
        (result,) = simulate(case.problem(), [case.placement()], timeline=True)
        assert not differences(case, result), f"seed {seed}"


@pytest.mark.parametrize("block", [slow(0), slow(1), *map(thorough, range(2, 8))])
def test_all_random_problems_and_what_they_hold(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * NUM_RANDOM // 8, (block + 1) * NUM_RANDOM // 8):
        case = random_case(seed)
        problem, placement = case.problem(), case.placement()
        (result,) = simulate(problem, [placement], timeline=True)
        assert not differences(case, result), f"seed {seed}"
        seen[result.infeasible.split()[0] if result.infeasible else "feasible"] += 1
        seen["transfers"] += result.transfers > 0
        seen["aliases sent"] += bool((np.diff(problem.graph.output_root) != 1).any() and result.transfers)
        seen["streams"] += bool((problem.cluster.streams > 1).any())
        cluster = problem.cluster
        used = {(link.src, channel) for link, channel in zip(cluster.links, cluster.link_channel.tolist(), strict=True)}
        seen["shared channel"] += len(used) > len(set(cluster.link_channel.tolist()))
        seen["sends"] += change_the_step("channel", case, result)
        seen["contention"] += contention_changes_the_step(case, result)
        seen["receives"] += change_the_step("receive_channel", case, result)
    expected = {"feasible": 80, "memory:": 40, "op": 10, "colocation": 1, "edge": 5, "transfers": 150, "aliases sent": 80,
                "streams": 100, "shared channel": 40, "sends": 20, "receives": 10, "contention": 5}  # fmt: skip
    assert all(seen[what] >= least for what, least in expected.items()), seen
