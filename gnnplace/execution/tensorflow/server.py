"""A process that holds the devices of a plan: a TensorFlow server on one core, which runs one op at a time, or the server of the GPUs.

Run as a module it is one of two things. With `--template` it imports TensorFlow once and then, on a line of JSON at its standard input,
forks a server (`start`, in a hundredth of the time of an import), kills one (`stop`), has one write down what it allocates (`record`, to a
`folder`) and end that (`recorded`); it answers in lines, `started`, `ended`, `record` and `recorded`. A server goes by the serial number
of its order.
With `--core` and `--port` it is one server, for plans of other hosts.

Nothing outlives its parent: the kernel kills servers with the template and the template with the process that started it.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
from contextlib import suppress
from typing import Any, NamedTuple

from gnnplace.execution.tensorflow import memory
from gnnplace.isolation.linux import die_with_parent, keep_freed_memory, short_slices


class Forked(NamedTuple):
    """A server that this process has forked: by which order, as which process."""

    serial: int
    pid: int
    requests: int  # a pipe: of each two lines one says where to write what it allocates, one to end that


def serve(core: int | None, port: int, logical_gpus: int, logical_gpu_bytes: int) -> Any:
    """A server of this process: pinned to `core`, or where there is no core that of the GPUs.

    A server on a core has two threads: ops that wait for each other keep one busy, and the other answers devices that ask for tensors.
    With one thread they would be answered when there is no op left to run. A thread without work sleeps: it would spin on the other's core.
    """
    keep_freed_memory()
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    if core is not None:
        os.sched_setaffinity(0, {core})
        short_slices()
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2, device_count={"GPU": 0})
        config.experimental.disable_thread_spinning = True
    elif logical_gpus:
        cut = config.gpu_options.experimental.virtual_devices.add()
        cut.memory_limit_mb.extend([logical_gpu_bytes // 2**20] * logical_gpus)
        config.gpu_options.visible_device_list = "0"
    else:
        config.gpu_options.allow_growth = True
    return tf.compat.v1.train.Server({"local": [f"localhost:{port}"]}, job_name="local", task_index=0, config=config)


def template(parent: int) -> None:
    """Forks and kills servers as told at standard input, until that ends; what it has forked ends with it."""
    die_with_parent(parent)
    import tensorflow

    assert tensorflow.__version__  # imported for the servers
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
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
    for server in servers.values():
        if server.serial == order.get("stop"):
            os.kill(server.pid, signal.SIGKILL)
        elif server.serial in (order.get("record"), order.get("recorded")):
            with suppress(BrokenPipeError):  # that it has ended is told all the same
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
    os.close(server.requests)
    return {"serial": server.serial, "code": os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1])}


def _answer(answers: int, **message: object) -> None:
    os.write(answers, json.dumps(message).encode() + b"\n")


def main() -> None:
    """The command line: `--template PARENT`, or `--core CORE --port PORT`."""
    parser = argparse.ArgumentParser(description="A TensorFlow server for one device of a placed step.")
    parser.add_argument("--template", type=int, metavar="PARENT", help="fork servers for the process PARENT")
    parser.add_argument("--core", type=int, help="be a server on this core; without it, the server of the GPUs")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    if given.template is not None:
        template(given.template)
    else:
        server = serve(given.core, given.port, 0, 0)
        print(server.target, flush=True)
        server.join()


if __name__ == "__main__":
    main()
