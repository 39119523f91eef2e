"""This machine as a cluster, with and without GPUs."""

from __future__ import annotations

import subprocess

import pytest

from gnnplace.execution import machine
from gnnplace.execution.machine import Gpu
from gnnplace.isolation.worker import usable_cores


def test_gpus_stand_beside_one_cpu_device() -> None:
    found = machine.with_gpus("here", [Gpu("One", 2**34), Gpu("Two", 2**33)])
    assert found.device_names == ("cpu:0", "gpu:0", "gpu:1")
    assert found.memory_bytes.tolist()[1:] == [2**34, 2**33]
    assert len(found.links) == 6
    assert {link.channel for link in found.links if link.src == "cpu:0"} == {"cpu:0"}


def test_without_gpus_it_is_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ())
    found = machine.machine("here")
    assert found.num_devices == len(usable_cores()) and all(link.receive_channel is None for link in found.links)
    assert all(link.receive_channel == link.dst for link in machine.machine("here", receive=True).links)


def test_what_pytorch_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 0, stdout='[["One", 5]]\n', stderr="")
    monkeypatch.setattr(machine.subprocess, "run", lambda *given, **named: done)
    assert machine.gpus() == (Gpu("One", 5),)
    done.returncode, done.stderr = 1, "Traceback\nImportError: no torch"
    with pytest.raises(ValueError, match="ImportError: no torch"):
        machine.gpus()


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_ASK", "import time; time.sleep(1000)")
    monkeypatch.setattr(machine, "LIMIT_S", 0.5)
    with pytest.raises(ValueError, match=r"no answer after 0\.5 s"):
        machine.gpus()


def test_pytorch_is_asked_in_another_process() -> None:
    assert all(gpu.memory_bytes > 0 for gpu in machine.gpus())
