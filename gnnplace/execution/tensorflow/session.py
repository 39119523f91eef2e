"""A session over the servers of a plan, which rewrites nothing; and the outcomes that its errors mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import tensorflow as tf

from gnnplace.isolation.linux import short_slices
from gnnplace.isolation.outcome import MeasurementError

v1 = tf.compat.v1

# otherwise a session whose server is dead never returns from its close
os.environ.setdefault("GRPC_FAIL_FAST", "true")

NO_REASON = re.compile(r"\s*=*$|([A-Z_]+: )?From /job:")  # rules between several errors, and their origins
NODE = re.compile(r"\{\{node ([^}\s]+)\}\}|for operation '?([^':\s]+)")
REFUSED = (
    "Cannot assign a device",
    "No OpKernel was registered",
    "No registered",
    "Cannot place the graph",
    "Could not satisfy",
)


def device_name(task: int, kind: str = "CPU", index: int = 0) -> str:
    """TensorFlow's name of a device of the server `task`."""
    return f"/job:device/replica:0/task:{task}/device:{kind}:{index}"


def task_of(device: str) -> int:
    """The server of a device, by TensorFlow's name of it.

    >>> task_of(device_name(2, "GPU", 1))
    2
    """
    return int(device.split("/task:")[1].split("/")[0])


@cache
def _master() -> tf.compat.v1.train.Server:
    """The server of this process: it holds the master, receives fetched tensors and lasts as long as the process."""
    short_slices()
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0})
    config.experimental.disable_thread_spinning = True
    return v1.train.Server({"local": ["localhost:0"]}, job_name="local", task_index=0, config=config)


def placed_session(graph: tf.Graph, addresses: Sequence[str]) -> tf.compat.v1.Session:
    """A session over the servers at `addresses`, tasks 0.. of the job `device`. It keeps the devices and the graph."""
    host_address = _master().target.removeprefix("grpc://")
    cluster = v1.train.ClusterSpec({"host": [host_address], "device": list(addresses)})
    config = v1.ConfigProto(
        cluster_def=cluster.as_cluster_def(), allow_soft_placement=False, isolate_session_state=True
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.optimizer_options.global_jit_level = -1
    return v1.Session(f"grpc://{host_address}", graph=graph, config=config)


@contextmanager
def failures(dead_server: Callable[[], str | None], device_of: Callable[[str], str]) -> Iterator[None]:
    """Turns TensorFlow's errors into outcomes.

    `dead_server` says which server has ended and how, None if none has; `device_of` names the device of an op.
    """
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise MeasurementError("out_of_memory", _reason(error)) from error
    except (tf.errors.OpError, RuntimeError) as error:
        message = str(error)
        if any(words in message for words in REFUSED):
            match = NODE.search(message)
            op = next(filter(None, match.groups())) if match else "?"
            raise MeasurementError(
                "unsupported", f"op {op!r} does not run on {device_of(op)}: {_reason(error)}"
            ) from error
        raise MeasurementError("crash", dead_server() or _reason(error)) from error


def _reason(error: Exception) -> str:
    """The first line of TensorFlow's message, without the header that TensorFlow's Python code adds."""
    text = re.sub(r"^Graph execution error:(.*\nNode: '[^\n]*'\n)?", "", str(error), flags=re.DOTALL)
    lines = [line for line in text.split("\n") if not NO_REASON.match(line)]
    return lines[0][:300] if lines else type(error).__name__
