"""A workload that misbehaves while it is loaded, and measurements that are interrupted: one outcome, in time, and no process is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from support import hostile_workloads
from support.fake_workload import CHAINS
from support.processes import LATE_S, MARK, START_UP_S, alive, marked

from gnnplace.execution.host import Host, _Life
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.isolation.outcome import MeasurementError

FILE = hostile_workloads.__file__

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two pinned CPU devices need two cores")

HANGS_S = 10.0  # the limit of what hangs: a busy machine, too, has begun to load the workload by then
LOADING = [
    ("segfault", "crash", "killed by SIGSEGV"),
    ("sleep", "timeout", "load: not done after 10 s"),
    ("deaf", "timeout", "load: not done after 10 s"),
    ("daemon", "timeout", "load: not done after 10 s"),
    ("allocate", "out_of_memory", "Unable to allocate"),
    ("leave", "crash", "ended with status 7"),
    ("crash", "crash", "RuntimeError: xxx"),
    ("silent", "crash", "doesn't answer any more"),
    ("orphan", "crash", "doesn't answer any more"),
]


@pytest.mark.parametrize(("function", "outcome", "reason"), LOADING)
def test_what_a_workload_does_while_it_is_loaded_is_one_outcome(
    function: str, outcome: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, limit = tmp_path / "ready", HANGS_S if outcome == "timeout" else START_UP_S
    monkeypatch.setenv(hostile_workloads.READY, str(ready))
    files, start = len(os.listdir("/proc/self/fd")), time.monotonic()
    with marked() as mark, pytest.raises(MeasurementError) as failed:
        Host(f"support.hostile_workloads:{function}", limit_s=limit)
    assert (failed.value.outcome, reason in failed.value.reason) == (outcome, True), failed.value.reason
    assert time.monotonic() - start < limit + LATE_S
    assert ready.exists() == (function in ("sleep", "daemon"))
    assert not alive(mark)
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_closed_step_is_forgotten_and_may_be_closed_again(tmp_path: Path) -> None:
    life, plan = _Life(), ExecutionPlan(CHAINS.cluster.devices, np.zeros(CHAINS.num_ops, dtype=np.int32), CHAINS.graph.order)
    life.answer("load", "support.fake_workload:load", (f"{tmp_path}:plain", 0))
    first, second = (life.answer("start", plan) for _ in range(2))
    kept = weakref.ref(life._steps[first])
    for _ in range(2):
        life.answer("close", first)
    assert kept() is None
    assert life.answer("start", plan) not in (first, second)
    assert len(life.answer("run", second, 3)) == 3


def started(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command_line = [sys.executable, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    return subprocess.Popen(command_line, env=variables, **pipes)


def measuring(function: str, **environment: str) -> subprocess.Popen[str]:
    words = "measure", f"{FILE}:{function}", "--cluster", "cpu-2", "--planner", "random", "--protocol", "paper", "--json"
    return started("-m", "gnnplace", *words, **environment)


def test_what_a_workload_prints_is_not_in_the_results() -> None:
    out, err = measuring("chatter").communicate(timeout=START_UP_S)
    assert json.loads(out)["outcome"] == "ok"
    assert "noise" in err


@pytest.mark.parametrize(("function", "words"), [("wrong_type", "returned a int"), ("own_exception", "a sentence of two lines")])
def test_a_workload_that_is_no_step_is_bad_input_in_one_line(function: str, words: str) -> None:
    process = measuring(function)
    out, err = process.communicate(timeout=START_UP_S)
    assert (process.returncode, out) == (4, "") and words in err and err.count("\n") == 1


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + START_UP_S
    while not path.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    assert path.exists()


def gone(mark: str) -> bool:
    end = time.monotonic() + LATE_S
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(mark)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_measurement_leaves_nothing(number: int, status: int, tmp_path: Path) -> None:
    mark = uuid4().hex
    process = measuring("hang_when_placed", **{MARK: mark, hostile_workloads.READY: str(tmp_path / "ready")})
    wait_for(tmp_path / "ready", process)
    assert len(alive(mark)) >= 4  # the command, the keeper, the host and a device
    process.send_signal(number)
    out, err = process.communicate(timeout=LATE_S)
    uncounted, said = err.splitlines()
    assert (process.returncode, out) == (status, "") and "no rule counts the flops" in uncounted and said.startswith("gnnplace measure: ")
    assert not alive(mark)


@pytest.mark.parametrize("function", ["sleep", "daemon"])
def test_a_parent_that_is_killed_leaves_nothing(function: str, tmp_path: Path) -> None:
    mark, load = uuid4().hex, f"Host('support.hostile_workloads:{function}', limit_s=100)"
    text = f"from gnnplace.execution.host import Host; {load}"
    process = started("-c", text, **{MARK: mark, hostile_workloads.READY: str(tmp_path / "ready")})
    wait_for(tmp_path / "ready", process)
    assert len(alive(mark)) >= 3
    process.kill()
    process.communicate(timeout=LATE_S)
    assert gone(mark)
