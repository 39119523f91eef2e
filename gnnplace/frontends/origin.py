"""The PyTorch step that a graph was captured from, for exports that try something with its module.

A step is kept while its graph lives. A graph that was read from a file or captured by another process has none.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from gnnplace.graph import ComputationGraph

# layers of a graph that are no submodules; ROOT_LAYER holds the ops of the outermost module itself
LOSS_LAYER, ROOT_LAYER, CLIP_LAYER, INPUT_LAYER = "loss", "module", "clip", "inputs"

_steps: WeakKeyDictionary[ComputationGraph, Any] = WeakKeyDictionary()


def captured(graph: ComputationGraph, step: Any) -> ComputationGraph:
    """Notes that `graph` was captured from `step`; returns the graph."""
    _steps[graph.plain] = step
    return graph


def step_of(graph: ComputationGraph) -> Any:
    """The TorchStep or TorchInference that a graph was captured from; None if this process has not captured it.

    All forms of a step of several micro-batches are captured from that of one, and so is a step for a runtime.
    """
    return _steps.get(graph.plain)
