"""What a graph was captured from: the step of PyTorch, for whoever has to try something with its module, and its layers
that are none.

A step lives as long as its graph. A graph that was read from a file, or that another process captured, has none.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from gnnplace.graph import ComputationGraph

LOSS_LAYER, ROOT_LAYER, CLIP_LAYER, INPUT_LAYER = "loss", "module", "clip", "inputs"  # the second is the module itself

_steps: WeakKeyDictionary[ComputationGraph, Any] = WeakKeyDictionary()


def captured(graph: ComputationGraph, step: Any) -> ComputationGraph:
    """The graph, of which it is known from now on that this step was captured."""
    _steps[graph] = step
    return graph


def step_of(graph: ComputationGraph) -> Any:
    """The TorchStep or TorchInference that a graph was captured from, None where it is not at hand."""
    return _steps.get(graph)
