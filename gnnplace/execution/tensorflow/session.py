"""Sessions: one over the servers of a plan in which nothing is rewritten,
and the ordinary one; and what their errors mean.
"""

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

# else a session whose server is dead waits for it for ever when it closes
os.environ.setdefault("GRPC_FAIL_FAST", "true")

NOT_SAID = re.compile(r"\s*=*$|([A-Z_]+: )?From /job:")  # rules between several errors, and where each one comes from
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


@cache
def _master() -> tf.compat.v1.train.Server:
    """The server of this process, which holds the master and receives
    what is fetched; it lasts as long as the process.
    """
    short_slices()
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1, device_count={"GPU": 0})
    config.experimental.disable_thread_spinning = True
    return v1.train.Server({"local": ["localhost:0"]}, job_name="local", task_index=0, config=config)


def placed_session(graph: tf.Graph, addresses: Sequence[str]) -> tf.compat.v1.Session:
    """A session over the servers at `addresses`, tasks 0.. of the job
    `device`: its placement is kept and its graph run as it is.
    """
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
def failures(died: Callable[[], str | None], device_of: Callable[[str], str]) -> Iterator[None]:
    """Turns TensorFlow's errors into outcomes.

    `died` says which server is dead and how; `device_of` names the device of an op.
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
        raise MeasurementError("crash", died() or _reason(error)) from error


def _reason(error: Exception) -> str:
    """The first line of TensorFlow's message, without the header that its Python side adds."""
    text = re.sub(r"^Graph execution error:(.*\nNode: '[^\n]*'\n)?", "", str(error), flags=re.DOTALL)
    lines = [line for line in text.split("\n") if not NOT_SAID.match(line)]
    return lines[0][:300] if lines else type(error).__name__
