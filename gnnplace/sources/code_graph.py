"""Reads a GRAPH given as code: `FILE.py:FUNCTION` or `package.module:FUNCTION`.

The function takes no arguments and returns a `ComputationGraph`, or an object with `computation_graph(name)` such as
`TorchStep`, `TorchInference`, `TensorFlowFunction` or `KerasModel`, or a `TensorFlowStep`, or a tuple: `(module,
inputs)` is inference, `(module, loss, inputs)` and `(module, loss, inputs, optimizer)` are training steps. It is called
with seeded generators. The step is not run, so its tensors may be on the `meta` device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from gnnplace.execution.host import Host
from gnnplace.exports import trial
from gnnplace.exports.trial import Trial
from gnnplace.frontends.tensorflow.step import TensorFlowStep
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.sources.code import function, user_code

LOADER = f"{__name__}:load"  # what a host calls in its child process
LOADING_S = 600.0
SEED = 0
# for the message about any other object; classes with `computation_graph` need not stand here
EXPECTED = "TorchStep, TorchInference, TensorFlowStep, TensorFlowFunction, KerasModel and ComputationGraph"
_NO_INPUTS = "has no inputs yet; give "
_FUNCTIONS = "tensorflow.python.eager.polymorphic_function"
# Classes that users give by mistake: what is missing, and what to give instead.
ADVICE: Mapping[str, str] = {
    "torch.nn.modules.module.Module": f"{_NO_INPUTS}TorchInference(module, inputs), or TorchStep(module, loss, inputs)",
    "keras.src.models.model.Model": f"{_NO_INPUTS}KerasModel(model, inputs), with targets for its training step",
    f"{_FUNCTIONS}.polymorphic_function.Function": f"{_NO_INPUTS}TensorFlowFunction(function, specs)",
    f"{_FUNCTIONS}.concrete_function.ConcreteFunction": "is no graph yet; give TensorFlowFunction(function)",
    "tensorflow.python.framework.ops.Graph": "does not say what its step computes; give TensorFlowStep(name, build)",
}


@runtime_checkable
class GraphSource(Protocol):
    """An object with a graph: every class of steps and networks but TensorFlowStep."""

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph, named `name`. Raises ValueError if it can't be captured."""
        ...


class Loaded(NamedTuple):
    """A graph in the child process that has read it."""

    graph: ComputationGraph

    def tried(self, target: str, *arguments: Any) -> Any:
        """The result of a trial of an export."""
        return trial.tried(self.graph, target, *arguments)


def code_graph(text: str) -> ComputationGraph:
    """The graph, read in a child process. Raises ValueError, with the line, if the code fails or ends that process."""
    with opened(text) as (graph, _):
        return graph


@contextmanager
def opened(text: str) -> Iterator[tuple[ComputationGraph, Trial]]:
    """As `code_graph`, with trials of exports in the child process, which lives until the context closes."""
    try:
        with Host(LOADER, text, limit_s=LOADING_S) as host:

            def try_export(target: str, *arguments: Any) -> Any:
                host.allow(LOADING_S)
                return host.tried(target, *arguments)

            yield host.graph, try_export
    except MeasurementError as failed:
        raise ValueError(f"{text}: {failed}") from failed


def load(text: str) -> Loaded:
    """The graph, read in this process. Raises ValueError if the code fails or returns something else."""
    name, build = function(text)
    import torch  # imported late, so that parsing of arguments need not wait for it

    torch.manual_seed(SEED)
    with user_code(f"{text}: can't be built"):
        return Loaded(graph_of(build(), name, "returned"))


def as_step(value: Any) -> Any:
    """The step of a tuple (module, inputs) or (module, loss, inputs[, optimizer]); any other value stays as it is."""
    if not isinstance(value, tuple) or not 2 <= len(value) <= 4:
        return value
    from gnnplace.frontends.torch.step import TorchInference, TorchStep

    return TorchInference(*value) if len(value) == 2 else TorchStep(*value)


def graph_of(value: Any, name: str, verb: str = "is") -> ComputationGraph:
    """The graph of a step, of a network with example inputs, or a graph itself.

    Raises ValueError for any other value, with a text such as "`verb` a Linear, which has no inputs yet".
    """
    match step := as_step(value):
        case ComputationGraph():
            return step
        case GraphSource():
            graph = step.computation_graph(name)
            if not isinstance(graph, ComputationGraph):
                raise ValueError(
                    f"{type(step).__name__}.computation_graph returned a {type(graph).__name__}, which is no "
                    "ComputationGraph"
                )
            return graph
        case TensorFlowStep():
            from gnnplace.execution.tensorflow.workload import TensorFlowWorkload

            return TensorFlowWorkload(replace(step, name=name, seed=SEED)).graph
    classes = [f"{base.__module__}.{base.__qualname__}" for base in type(step).__mro__]
    advice = next((ADVICE[base] for base in classes if base in ADVICE), f"is none of {EXPECTED}")
    raise ValueError(f"{verb} a {type(step).__name__}, which {advice}")
