"""A user's description of a TensorFlow training step. It can be pickled, and this module does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorFlowStep:
    """A training step. `build()` returns its loss and train op.

    `build` runs in graph mode, in the default `tf.Graph` with resource variables. Placeholders are filled once, with
    random values from `seed`: floats from a standard normal; integers from 0 up to, but excluding, `below[name]`
    (default 2); booleans at random. The same seed initialises variables and random ops. `blocks` is as in `read_step`.
    """

    name: str
    build: Callable[[], tuple[Any, Any]]
    blocks: Mapping[str, int] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Machine:
    """The hardware behind devices.

    The k-th device of kind `cpu` is a process on the k-th core that this process may use. `logical_gpu_bytes` divides
    GPU 0 into one logical device of that size for each device of another kind in the plan.
    """

    logical_gpu_bytes: int | None = None
