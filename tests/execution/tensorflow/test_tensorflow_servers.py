"""The process that forks TensorFlow servers, and what it says of them."""

import os
import signal
import time

import pytest

pytest.importorskip("tensorflow")

from support.processes import LATE_S

from gnnplace.execution.tensorflow.servers import Template
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores


def order() -> dict:
    return {"core": usable_cores()[0], "logical_gpus": 0, "logical_gpu_bytes": 0}


def test_a_template_that_was_killed_is_started_anew():
    template = Template()
    try:
        template.start([order()])
        first = template._process.pid
        os.kill(first, signal.SIGKILL)
        template._process.wait(LATE_S)
        (server,) = template.start([order()])
        assert template._process.pid != first
        assert template.exit_code(server, 0.0) is None
    finally:
        template.close()


def test_a_server_says_what_it_held_since_it_was_asked_and_that_it_has_ended(monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # as on a processor without AVX-512, where the allocator would say nothing
    template = Template()
    try:
        (server,) = template.start([order()])
        with template.recording([server]) as recorded:
            pass
        assert recorded == [[(0, 0)]]
        os.kill(server.pid, signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(MeasurementError, match="ended before it said what it held"), template.recording([server]):
            pass
        assert time.monotonic() - begun < LATE_S
    finally:
        template.close()
