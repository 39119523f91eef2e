"""`here`: what frameworks report of this machine, with the rates of the table of hardware."""

from __future__ import annotations

import subprocess

import pytest

from gnnplace.corpus import hardware
from gnnplace.execution import machine
from gnnplace.execution.machine import Gpu
from gnnplace.isolation.worker import usable_cores
from gnnplace.sources import graphs


@pytest.fixture(autouse=True)
def asked_anew():
    machine.here.cache_clear()
    yield
    machine.here.cache_clear()


def test_gpus_have_their_drivers_memory_and_the_tables_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: (Gpu("NVIDIA H100 80GB HBM3", 85 * 10**9), Gpu("NVIDIA L4", 23 * 10**9)))
    here = graphs.cluster("here")
    assert here.name == "here" and here.device_names == ("cpu:0", "gpu:0", "gpu:1")
    assert here.memory_bytes.tolist()[1:] == [85 * 10**9, 23 * 10**9]
    for device, name in zip(here.devices[1:], ("h100-sxm", "l4"), strict=True):
        rated = hardware.part(name).device(device.name)
        assert (device.flops_per_s, device.memory_bytes_per_s) == (rated.flops_per_s, rated.memory_bytes_per_s)
    rates = {(link.src, link.dst): link.bandwidth_bytes_per_s // 10**8 for link in here.links}
    assert rates == {
        ("cpu:0", "gpu:0"): 500, ("gpu:0", "cpu:0"): 500, ("cpu:0", "gpu:1"): 250, ("gpu:1", "cpu:0"): 250,
        ("gpu:0", "gpu:1"): 125, ("gpu:1", "gpu:0"): 125,
    }  # fmt: skip


def test_a_gpu_that_the_table_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: (Gpu("NVIDIA GeForce GTX 970", 4 * 10**9),))
    with pytest.raises(ValueError, match=r"^here: 'NVIDIA GeForce GTX 970' is no GPU of the table of hardware; `gnnplace calibrate`"):
        graphs.cluster("here")


def test_without_gpus_it_is_its_cores_and_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(machine, "gpus", lambda: asked.append(1) or ())
    assert graphs.cluster("here").num_devices == len(usable_cores()) and graphs.cluster("here").devices[0].kind == "cpu"
    assert asked == [1]


def test_tensorflow_is_asked_where_pytorch_sees_none(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ())
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(machine, "DRIVERS", (str(tmp_path),))
    done = subprocess.CompletedProcess([], 0, stdout='["Tesla T4"]\n', stderr="")
    monkeypatch.setattr(machine.subprocess, "run", lambda *given, **named: done)
    assert graphs.cluster("here").devices[1].memory_bytes == hardware.part("t4").usable_bytes
    monkeypatch.setattr(machine, "DRIVERS", (str(tmp_path / "none"),))
    assert machine.tensorflow_gpus() == ()
    monkeypatch.setattr(machine, "DRIVERS", (str(tmp_path),))
    done.returncode, done.stderr = 1, "ImportError: no tensorflow"
    with pytest.raises(ValueError, match="TensorFlow can't list this machine's GPUs: ImportError: no tensorflow"):
        machine.tensorflow_gpus()
