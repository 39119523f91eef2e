"""The servers of a plan, from the process that places the step: their layout, start, watch and certain end."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from gnnplace.cluster import Device
from gnnplace.execution.tensorflow.memory import recorded
from gnnplace.execution.tensorflow.session import device_name
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.tensorflow.step import Machine
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.isolation import python
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores

START_S = 120.0  # the import of TensorFlow on a busy machine
END_S = 5.0
# a process that forks must have no other thread, and TensorFlow imports pyarrow, which starts one
ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
# on by default only with AVX-512; the allocator of a core reports its bytes only with oneDNN
ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "1"}


@dataclass(frozen=True)
class Server:
    """A server of this host: the serial number of its order, its process and its address."""

    serial: int
    pid: int
    address: str


@dataclass(eq=False)
class Template:
    """The process that forks servers (see server.py). The thread that starts it must outlive it."""

    _process: subprocess.Popen[bytes] | None = None
    _pending: bytes = b""
    _serials: Iterator[int] = field(default_factory=count)
    _ended: dict[int, int] = field(default_factory=dict)  # exit codes by serial number, because the system reuses pids

    def start(self, orders: Sequence[Mapping[str, Any]]) -> tuple[Server, ...]:
        """Starts a server for each order (arguments of `server.serve`).

        Raises MeasurementError, and starts none, if one fails.
        """
        self._launch()
        serials = [next(self._serials) for _ in orders]
        try:
            for serial, order in zip(serials, orders, strict=True):
                self._write({"serial": serial, "start": dict(order)})
            return self._await_start(serials)
        except BaseException:
            self._stop(serials)
            raise

    def exit_code(self, server: Server, wait_s: float) -> int | None:
        """A server's exit code (negative: a signal); None if it has not ended within `wait_s`."""
        return self._exit_code(server.serial, wait_s)

    @contextmanager
    def recording(self, servers: Sequence[Server]) -> Iterator[list[list[tuple[int, int]]]]:
        """Records the memory of each core's tensors within this context (see `memory.recorded`).

        The list is filled at the end of the context.
        """
        allocations: list[list[tuple[int, int]]] = []
        with TemporaryDirectory() as folder:
            folders = [Path(folder) / str(server.serial) for server in servers]
            before = self._ask("record", servers, [{"folder": str(path)} for path in folders])
            yield allocations
            self._ask("recorded", servers, [{}] * len(servers))
            allocations += [recorded(path, answer["bytes"]) for path, answer in zip(folders, before, strict=True)]

    def _ask(self, word: str, servers: Sequence[Server], more: Sequence[Mapping[str, str]]) -> list[dict[str, int]]:
        """Sends the order `word` to each server and returns their answers."""
        for server, rest in zip(servers, more, strict=True):
            self._write({word: server.serial, **rest})
        answers: dict[int, dict[str, int]] = {}
        until = time.monotonic() + START_S
        while len(answers) < len(servers):
            message = None if any(server.serial in self._ended for server in servers) else self._read(until)
            if message is None:
                raise MeasurementError("crash", "a TensorFlow server ended before it said what it held")
            if word in message:
                answers[message[word]["serial"]] = message[word]
        return [answers[server.serial] for server in servers]

    def stop(self, servers: Sequence[Server]) -> None:
        """Kills servers and waits for their end."""
        self._stop([server.serial for server in servers])

    def close(self) -> None:
        """Ends the template and all its servers."""
        if self._process is None:
            return
        process, self._process, self._pending = self._process, None, b""
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _await_start(self, serials: Sequence[int]) -> tuple[Server, ...]:
        """Waits until the servers of these orders have started, and returns them.

        Late answers to earlier orders are ignored. Raises MeasurementError if one ends or does not start in time.
        """
        started: dict[int, Server] = {}
        until = time.monotonic() + START_S
        while len(started) < len(serials):
            message = self._read(until)
            ended = [self._ended[serial] for serial in serials if serial in self._ended]
            if message is None or ended:
                code = f": {signal_name(ended[0])}" if ended else ""
                raise MeasurementError("crash", f"one of {len(serials)} TensorFlow servers did not start{code}")
            if "started" in message and message["started"]["serial"] in serials:
                server = Server(**message["started"])
                started[server.serial] = server
        return tuple(started[serial] for serial in serials)

    def _exit_code(self, serial: int, wait_s: float) -> int | None:
        """The exit code of the server of an order; None if it has not ended within `wait_s`."""
        until = time.monotonic() + wait_s
        while serial not in self._ended and self._process is not None and self._read(until) is not None:
            pass
        return self._ended.get(serial)

    def _stop(self, serials: Sequence[int]) -> None:
        """Kills the servers of these orders and waits for their end."""
        if self._process is None or self._process.poll() is not None:
            return
        for serial in serials:
            if serial not in self._ended:
                self._write({"stop": serial})
        for serial in serials:
            self._exit_code(serial, END_S)

    def _launch(self) -> None:
        """Starts the template, unless it runs."""
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it was killed, e.g. for lack of memory; the next servers get a new one
        if self._process is None:
            command = python.command("-m", "gnnplace.execution.tensorflow.server", str(os.getpid()))
            environment = {"TF_CPP_MIN_LOG_LEVEL": "2"} | python.environment(**ONE_THREAD, **ONEDNN)
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def _write(self, order: Mapping[str, Any]) -> None:
        """Sends an order. Raises MeasurementError if the template has ended."""
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise MeasurementError("crash", "the template of the TensorFlow servers has ended") from None

    def _read(self, until: float) -> dict[str, Any] | None:
        """The next message of the template; None if there is none in time or the template has ended."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        with selectors.DefaultSelector() as events:
            events.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                left = until - time.monotonic()
                data = os.read(descriptor, 65536) if events.select(max(left, 0.0)) else b""
                if not data:
                    return None
                self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if "ended" in message:
            self._ended[message["ended"]["serial"]] = message["ended"]["code"]
        return message


def signal_name(code: int) -> str:
    """An exit code in words."""
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


class Layout(NamedTuple):
    """The servers to start, and TensorFlow's name of each device of the plan."""

    orders: tuple[Mapping[str, Any], ...]
    devices: tuple[str, ...]


def layout(devices: Sequence[Device], machine: Machine) -> Layout:
    """The servers that hold the devices of a plan.

    Raises MeasurementError if there are more CPU devices than usable cores.
    """
    cpus = [d for d, device in enumerate(devices) if device.kind == "cpu"]
    cores = usable_cores()
    if len(cpus) > len(cores):
        raise MeasurementError(
            "unsupported", f"{len(cpus)} devices of kind cpu and {len(cores)} cores that this process may use"
        )
    orders = [_order(core) for core in cores[: len(cpus)]]
    gpus = len(devices) - len(cpus)
    if gpus:  # one server for all
        logical = gpus if machine.logical_gpu_bytes else 0
        orders.append({"core": None, "logical_gpus": logical, "logical_gpu_bytes": machine.logical_gpu_bytes or 0})
    names, next_cpu, next_gpu = [], 0, 0
    for device in devices:
        if device.kind == "cpu":
            names.append(device_name(next_cpu))
            next_cpu += 1
        else:
            names.append(device_name(len(cpus), "GPU", next_gpu))
            next_gpu += 1
    return Layout(tuple(orders), tuple(names))


def room_bytes(graph: ComputationGraph, plan: ExecutionPlan) -> list[int]:
    """For each device twice the bytes that it holds, makes or receives in a step, at most its memory.

    Twice, because some bytes are lost between tensors. 0 for a GPU, whose allocator would reserve memory instead of
    addresses.
    """
    data = np.flatnonzero(graph.edge_data != NONE)
    outputs = np.concatenate([np.arange(len(graph.output_bytes)), graph.edge_data[data]])
    devices = np.concatenate([plan.device[graph.output_op], plan.device[graph.edge_dst[data]]])
    output, device_of = np.unique(np.stack([outputs, devices]), axis=1)
    held = np.bincount(device_of, graph.output_bytes[output], len(plan.devices))
    held += np.bincount(plan.device, graph.persistent_bytes, len(plan.devices))
    rooms = zip(plan.devices, held.tolist(), strict=True)
    return [min(2 * int(room), device.memory_bytes) if device.kind == "cpu" else 0 for device, room in rooms]


def _order(core: int) -> Mapping[str, Any]:
    """The order for a server on a core."""
    return {"core": core, "logical_gpus": 0, "logical_gpu_bytes": 0}
