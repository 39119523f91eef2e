"""The TensorFlow step that a user names: what builds it, what its inputs may hold. Small, picklable, and free of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorFlowStep:
    """A training step. `build` makes its loss and its train op in the default `tf.Graph`, in graph mode, with resource variables.

    Placeholders are filled once from `seed`: floats with a standard normal, integers with 0 up to below what `below` gives for the name
    of the placeholder (2 where it gives none), booleans with either. The same seed starts variables and random ops.
    """

    name: str
    build: Callable[[], tuple[Any, Any]]
    blocks: Mapping[str, int] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Machine:
    """Where devices are. Without `addresses`, the k-th of kind `cpu` is a process on the k-th core that this process may use.

    With them, it is the server at the k-th address, `host:port`, started there by
    `python -m gnnplace.execution.tensorflow.server --core 0 --port 4000` with the same version of TensorFlow; such a server takes orders
    from whoever reaches its port. `logical_gpu_bytes` cuts GPU 0 into as many devices of that size as a plan has of other kinds.
    """

    addresses: tuple[str, ...] = ()
    logical_gpu_bytes: int | None = None
