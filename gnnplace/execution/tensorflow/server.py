"""A process that holds devices of a plan: a TensorFlow server on one core, which runs one op at a time, or of the GPUs.

`python -m gnnplace.execution.tensorflow.server PARENT` runs the template. It imports TensorFlow once, then obeys
orders: lines of JSON at standard input. `start` forks a server, in a hundredth of the time of an import; `stop` kills
one; `record` makes one record its allocations in a `folder`, until `recorded`. Its answers are lines of JSON:
`started`, `ended`, `record`, `recorded`. A server is named by the serial number of the order that started it.

Nothing outlives its parent: the kernel kills servers with the template, and the template with the process PARENT.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
from contextlib import suppress
from typing import Any, NamedTuple

from gnnplace.execution.tensorflow import memory
from gnnplace.isolation.imports import silenced
from gnnplace.isolation.linux import die_with_parent, keep_freed_memory, short_slices


class Forked(NamedTuple):
    """A server that this process has forked: the serial number of its order, and its process."""

    serial: int
    pid: int
    requests: int  # a pipe: odd lines name a folder for a record of allocations, even lines end the record


def serve(core: int | None, logical_gpus: int, logical_gpu_bytes: int) -> Any:
    """A server of this process: pinned to `core`, or without a core that of the GPUs.

    A server on a core has two threads. Ops that wait for each other keep one busy; the other answers devices that
    request tensors. One thread alone would answer them only when there is no op to run. A thread without work sleeps,
    because it would spin on the other's core.
    """
    keep_freed_memory()
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    if core is not None:
        os.sched_setaffinity(0, {core})
        short_slices()
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=2, device_count={"GPU": 0}
        )
        config.experimental.disable_thread_spinning = True
    elif logical_gpus:
        cut = config.gpu_options.experimental.virtual_devices.add()
        cut.memory_limit_mb.extend([logical_gpu_bytes // 2**20] * logical_gpus)
        config.gpu_options.visible_device_list = "0"
    else:
        config.gpu_options.allow_growth = True
    return tf.compat.v1.train.Server({"local": ["localhost:0"]}, job_name="local", task_index=0, config=config)


def template(parent: int) -> None:
    """Obeys the orders at standard input until its end, which ends all servers."""
    die_with_parent(parent)
    with silenced(2):
        import tensorflow

    assert tensorflow.__version__  # imported for the servers
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries print to standard error, not among answers
    servers: dict[int, Forked] = {}  # by pidfd
    events = selectors.DefaultSelector()
    events.register(0, selectors.EVENT_READ)
    pending = b""
    while True:
        for key, _ in events.select():
            if key.fd in servers:
                events.unregister(key.fd)
                os.close(key.fd)
                _answer(answers, ended=_reap(servers.pop(key.fd)))
                continue
            data = os.read(0, 65536)
            if not data:
                for server in servers.values():
                    os.kill(server.pid, signal.SIGKILL)
                    os.waitpid(server.pid, 0)
                os._exit(0)  # TensorFlow takes seconds to leave
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _obey(json.loads(line), servers, events, answers)


def _obey(order: dict[str, Any], servers: dict[int, Forked], events: selectors.BaseSelector, answers: int) -> None:
    """Obeys one order of `start`, `stop`, `record` or `recorded`."""
    for server in servers.values():
        if server.serial == order.get("stop"):
            os.kill(server.pid, signal.SIGKILL)
        elif server.serial in (order.get("record"), order.get("recorded")):
            with suppress(BrokenPipeError):  # its end is answered in any case
                os.write(server.requests, f"{order.get('folder', '')}\n".encode())
    if "start" in order:
        read, write = os.pipe()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            _become_server(order, parent, read, answers)
        os.close(read)
        pidfd = os.pidfd_open(pid)
        servers[pidfd] = Forked(order["serial"], pid, write)
        events.register(pidfd, selectors.EVENT_READ)


def _become_server(order: dict[str, Any], parent: int, requests: int, answers: int) -> None:
    """The life of a forked server; never returns."""
    try:
        die_with_parent(parent)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        server = serve(**order["start"])
        address = server.target.removeprefix("grpc://")
        _answer(answers, started={"serial": order["serial"], "pid": os.getpid(), "address": address})
        for folder in (lines := os.fdopen(requests)):
            in_use = memory.begin(folder.rstrip("\n"))
            _answer(answers, record={"serial": order["serial"], "bytes": in_use})
            next(lines)
            memory.end()
            _answer(answers, recorded={"serial": order["serial"]})
    finally:
        os._exit(1)  # never back into the template's loop


def _reap(server: Forked) -> dict[str, int]:
    """The serial number and exit code of a server that has ended."""
    os.close(server.requests)
    return {"serial": server.serial, "code": os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1])}


def _answer(answers: int, **message: object) -> None:
    os.write(answers, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    template(int(sys.argv[1]))
