"""Two ranks on this host, over gloo: as `torchrun` starts them, through the command that users run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import torch_steps

from gnnplace.execution.machine import cores
from gnnplace.execution.torch import distributed
from gnnplace.execution.torch.workload import TorchWorkload
from gnnplace.formats.clusters import cluster_document
from gnnplace.formats.placements import placement_document
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores
from gnnplace.placement import Placement

STEPS_FILE = Path(torch_steps.__file__)
LIMIT_S = 600


@pytest.fixture
def workload() -> TorchWorkload:
    return torch_steps.workload("branches")


@pytest.mark.skipif(len(usable_cores()) < 2, reason="two devices need two cores")
def test_two_ranks_compute_what_eager_does(workload: TorchWorkload, tmp_path: Path) -> None:
    cluster = cores("two", 2)
    (tmp_path / "cluster.json").write_text(json.dumps(cluster_document(cluster)))
    plan = torch_steps.spread(workload.graph, cluster.devices, seed=0)
    graph = replace(workload.graph, name=f"{STEPS_FILE.stem}.branches")  # as the command names it
    document = placement_document(graph, cluster, Placement(plan.device))
    (tmp_path / "placement.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "gnnplace", "measure",
               f"{STEPS_FILE}:branches", "--cluster", str(tmp_path / "cluster.json"), "--placement", str(tmp_path / "placement.json"),
               "--against", "nothing", "--protocol", "paper", "--json"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), str(STEPS_FILE.parent), *sys.path]))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()  # rank 0 alone prints
    found = json.loads(line)
    assert found["outcome"] == "ok"
    assert found["difference"]["largest"] < 1e-5 and found["difference"]["variables"] > 0
    assert [words.split(" on ")[0] for words in found["devices"].values()] == ["rank 0", "rank 1"]
    assert len(found["step_ns"]) == 5 and min(found["peak_memory_bytes"].values()) > 0


def test_ranks_and_devices_must_be_as_many_and_of_one_kind(workload: TorchWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert distributed.launched()
    for kinds in (("cpu",), ("cpu", "gpu"), ("cpu", "cpu", "cpu")):
        plan = torch_steps.spread(workload.graph, torch_steps.devices(*kinds), seed=0)
        with pytest.raises(MeasurementError, match=f"{len(kinds)} devices") as refused:
            distributed.TorchDistributed(workload._traced, plan, workload._held)
        assert refused.value.outcome == "unsupported"
