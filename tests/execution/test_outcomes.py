"""A placed step that crashes, hangs, hoards or errs ends in exactly one outcome, in time, and leaves no process: with real ones."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support import hostile_workloads
from support.processes import LATE_S, START_UP_S, alive, marked

from gnnplace import cli
from gnnplace.corpus import clusters, manifest
from gnnplace.execution import evaluator
from gnnplace.execution.host import Host
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.formats.placements import placement_document
from gnnplace.placement import Placement
from gnnplace.sources.workload import LOADER

FILE = hostile_workloads.__file__

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two pinned CPU devices need two cores")


class Marked(NamedTuple):
    """A host, and the mark in the environment of all its processes, wherever they hide."""

    host: Host
    mark: str


@pytest.fixture(scope="module")
def shared() -> Iterator[Marked]:
    with marked() as mark:
        host = Host(LOADER, f"{FILE}:by_placement", 0, limit_s=START_UP_S)
    with host:
        yield Marked(host, mark)
    assert not alive(mark)


@pytest.fixture
def run(shared: Marked, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any, str]]:
    """`gnnplace measure` with the shared host: its status, its line of JSON, if any, and stderr."""

    class Kept:
        def __init__(self, open_host: Any) -> None: ...
        def __call__(self) -> Host:
            return shared.host

        def close(self) -> None: ...

    monkeypatch.setattr(evaluator, "LastingHost", Kept)

    def measured(*arguments: str) -> tuple[int, Any, str]:
        capfd.readouterr()
        status = cli.main(["measure", f"{FILE}:by_placement", "--against", "nothing", "--protocol", "paper", "--json", *arguments])
        out, err = capfd.readouterr()
        assert out.count("\n") <= 1
        return status, json.loads(out) if out else None, err

    return measured


def written(path: Path, document: dict[str, Any]) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def placed(shared: Marked, path: Path, *names: str) -> str:
    """A placement with the named ops on the second device and all others on the first."""
    graph = shared.host.graph
    device = np.isin(np.array(graph.op_names), names).astype(np.int32)
    assert device.sum() == len(names)
    return written(path, placement_document(graph, clusters.cluster("cpu-2"), Placement(device)))


def hostile_op(shared: Marked, way: str) -> str:
    names = [name for name in shared.host.graph.op_names if name.startswith("misbehave")]
    return names[list(hostile_workloads.WAYS).index(way)]


HANGS_S = 8.0  # the limit of a step that hangs: a busy machine, too, has started it by then
OUTCOMES = [
    ("segfault", "crash", "cpu:1 was killed by SIGSEGV"),
    ("exit", "crash", "cpu:1 ended with status 3"),
    ("leave", "crash", "cpu:1 ended with status 1"),
    ("crash", "crash", "RuntimeError: xxx"),
    ("own_exception", "crash", "a sentence of two lines"),
    ("vanish", "crash", "cpu:1 ended with status 0"),
    ("sleep", "timeout", "run: not done after 8 s"),
    ("daemon", "timeout", "run: not done after 8 s"),
    ("forks", "timeout", "run: not done after 8 s"),
    ("deaf", "timeout", "run: not done after 8 s"),
    ("silent", "timeout", "run: not done after 8 s"),
    ("allocate", "out_of_memory", "Unable to allocate"),
    ("native_hoard", "out_of_memory", "can't allocate memory"),
    ("no_kernel", "unsupported", "NotImplementedError: no kernel here"),
    ("other_result", "wrong_output", "differs by"),
]


@pytest.mark.parametrize(("way", "outcome", "reason"), OUTCOMES)
def test_what_a_device_process_does_is_one_outcome(
    way: str, outcome: str, reason: str, shared: Marked, run: Callable[..., Any], tmp_path: Path
) -> None:
    host_alone, start, shared_memory = alive(shared.mark), time.monotonic(), set(os.listdir("/dev/shm"))
    path = placed(shared, tmp_path / "p.json", hostile_op(shared, way))
    status, found, err = run("--cluster", "cpu-2", "--placement", path, "--limit", str(HANGS_S if outcome == "timeout" else START_UP_S))
    assert (status, found["outcome"]) == (5, outcome)
    assert reason in found["reason"] and len(found["reason"]) < 600 and "Traceback" not in err
    assert outcome != "timeout" or time.monotonic() - start < HANGS_S + LATE_S
    assert alive(shared.mark) == host_alone and len(host_alone) == 2  # the keeper and the host, which goes on to the next
    assert set(os.listdir("/dev/shm")) <= shared_memory


def test_a_host_that_has_seen_it_all_still_measures(shared: Marked, run: Callable[..., Any], tmp_path: Path) -> None:
    path = placed(shared, tmp_path / "p.json", hostile_op(shared, "crash"))
    assert run("--cluster", "cpu-2", "--placement", path)[0] == 5
    status, found, _ = run("--cluster", "cpu-2", "--placement", placed(shared, tmp_path / "q.json"))
    assert (status, found["outcome"]) == (0, "ok")
    assert found["difference"]["largest"] == 0 and len(found["step_ns"]) == 5


def test_wrong_placements_are_bad_input_in_one_line(shared: Marked, run: Callable[..., Any], tmp_path: Path) -> None:
    good = json.loads(Path(placed(shared, tmp_path / "p.json")).read_text())
    first = shared.host.graph.op_names[0]
    group = next(name for name, value in zip(shared.host.graph.op_names, shared.host.graph.colocation, strict=True) if value)
    wrong = {
        "unknown": (good | {"device": good["device"] | {first: "cpu:7"}}, "cpu:7"),
        "split": (good | {"device": good["device"] | {group: "cpu:1"}}, "is split"),
        "other": (good | {"graph": good["graph"] | {"sha256": "0" * 64}}, "the placement is"),
        "missing": (good | {"device": {first: "cpu:0"}}, "device"),
    }
    for name, (document, words) in wrong.items():
        status, found, err = run("--cluster", "cpu-2", "--placement", written(tmp_path / f"{name}.json", document))
        assert (status, found) == (4, None), name
        *warnings, error = err.splitlines()
        assert words in error and all("no rule counts the flops" in line for line in warnings), name


def test_a_plan_in_no_order_is_bad_input(shared: Marked) -> None:
    graph, devices = shared.host.graph, clusters.cluster("cpu-2").devices
    with pytest.raises(ValueError, match="comes before"):
        shared.host.start(ExecutionPlan(devices, np.zeros(graph.num_ops, dtype=np.int32), graph.order[::-1].copy()))


@pytest.mark.parametrize(("kind", "count", "words"), [("cpu", 1 + len(os.sched_getaffinity(0)), "as many cores"), ("npu", 2, "npu")])
def test_devices_that_this_machine_lacks_are_unsupported(
    kind: str, count: int, words: str, run: Callable[..., Any], tmp_path: Path
) -> None:
    rates = {"kind": kind, "memory_bytes": 2**33, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9}
    names = [f"{kind}:{number}" for number in range(count)]
    links = [{"src": a, "dst": b, "bandwidth_bytes_per_s": 10**9} for a in names for b in names if a != b]
    document = {"format": "gnnplace.cluster", "version": 1, "name": "odd", "devices": [{"name": n, **rates} for n in names], "links": links}
    status, found, _ = run("--cluster", written(tmp_path / "odd.json", document), "--planner", "random")
    assert (status, found["outcome"]) == (5, "unsupported") and words in found["reason"]


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_memory_bytes_of_a_device_is_exact(missing_bytes: int, shared: Marked, run: Callable[..., Any], tmp_path: Path) -> None:
    path = placed(shared, tmp_path / "p.json")
    peak = run("--cluster", "cpu-2", "--placement", path)[1]["peak_memory_bytes"]["cpu:0"]
    document = json.loads((manifest.folder() / "clusters" / "cpu-2.json").read_text())
    document["devices"][0]["memory_bytes"] = peak - missing_bytes
    small = json.loads(Path(path).read_text()) | {"cluster": None}
    arguments = "--cluster", written(tmp_path / "small.json", document), "--placement", written(tmp_path / "small_p.json", small)
    status, found, _ = run(*arguments)
    assert (status, found["outcome"]) == ((5, "out_of_memory") if missing_bytes else (0, "ok"))
