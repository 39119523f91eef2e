"""Reads a GRAPH given as code (`FILE.py:FUNCTION` or `package.module:FUNCTION`): the computation graph of what the
function returns.

The function takes no arguments and returns a `TorchStep`, `TorchInference`, `TensorFlowStep`, `TensorFlowFunction`,
`KerasModel` or `ComputationGraph`, or a tuple of what the first two are made of: `(module, inputs)` is inference,
`(module, loss, inputs)` and `(module, loss, inputs, optimizer)` are training steps. It is called with seeded
generators. The step is not run, so its tensors may be on the `meta` device.
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
from gnnplace.sources.code import function, theirs

LOADER = f"{__name__}:load"  # for a host
LOADING_S = 600.0
SEED = 0
KNOWN = "TorchStep, TorchInference, TensorFlowStep, TensorFlowFunction, KerasModel and ComputationGraph"
_NO_INPUTS = "has no inputs yet; give "
_FUNCTIONS = "tensorflow.python.eager.polymorphic_function"
# Classes that a user may give by mistake: what is missing, and what to give instead.
ADVICE: Mapping[str, str] = {
    "torch.nn.modules.module.Module": f"{_NO_INPUTS}TorchInference(module, inputs), or TorchStep(module, loss, inputs)",
    "keras.src.models.model.Model": f"{_NO_INPUTS}KerasModel(model, inputs), with targets for its training step",
    f"{_FUNCTIONS}.polymorphic_function.Function": f"{_NO_INPUTS}TensorFlowFunction(function, specs)",
    f"{_FUNCTIONS}.concrete_function.ConcreteFunction": "is no graph yet; give TensorFlowFunction(function)",
    "tensorflow.python.framework.ops.Graph": "does not say what its step computes; give TensorFlowStep(name, build)",
}


@runtime_checkable
class GraphSource(Protocol):
    """An object that a front-end can read."""

    def computation_graph(self, name: str) -> ComputationGraph:
        """The graph, named `name`. Raises ValueError if it can't be captured."""
        ...


class Loaded(NamedTuple):
    """A graph, as a host loads it."""

    graph: ComputationGraph

    def tried(self, target: str, *given: Any) -> Any:
        """What came of the trial of an export."""
        return trial.tried(self.graph, target, *given)


def code_graph(text: str) -> ComputationGraph:
    """The graph, read in a child process. Raises ValueError, with the line, if the code fails or ends that process."""
    with opened(text) as (graph, _):
        return graph


@contextmanager
def opened(text: str) -> Iterator[tuple[ComputationGraph, Trial]]:
    """As `code_graph`, and trials of exports in the child process, which lives until the context closes."""
    try:
        with Host(LOADER, text, limit_s=LOADING_S) as host:

            def ask(target: str, *given: Any) -> Any:
                host.allow(LOADING_S)
                return host.tried(target, *given)

            yield host.graph, ask
    except MeasurementError as failed:
        raise ValueError(f"{text}: {failed}") from failed


def load(text: str) -> Loaded:
    """The graph, read in this process. Raises ValueError if the code fails or returns something else."""
    name, build = function(text)
    import torch  # here, so that a parser of arguments need not wait for it

    torch.manual_seed(SEED)
    with theirs(f"{text}: can't be built"):
        return Loaded(graph_of(build(), name, "returned"))


def as_step(made: Any) -> Any:
    """The step of which a tuple holds the module, the loss unless it is inference, the inputs and, if it is given, the
    optimiser.

    Anything else as it is.
    """
    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        return made
    from gnnplace.frontends.torch.step import TorchInference, TorchStep

    return TorchInference(*made) if len(made) == 2 else TorchStep(*made)


def graph_of(made: Any, name: str, verb: str = "is") -> ComputationGraph:
    """The graph of a step, of a network with example inputs, or a graph itself.

    Raises ValueError, after `verb`, for anything else.
    """
    match made := as_step(made):
        case ComputationGraph():
            return made
        case GraphSource():
            graph = made.computation_graph(name)
            if not isinstance(graph, ComputationGraph):
                raise ValueError(
                    f"{type(made).__name__}.computation_graph returned a {type(graph).__name__}, which is no "
                    "ComputationGraph"
                )
            return graph
        case TensorFlowStep():
            from gnnplace.execution.tensorflow.workload import TensorFlowWorkload

            return TensorFlowWorkload(replace(made, name=name, seed=SEED)).graph
    classes = [f"{base.__module__}.{base.__qualname__}" for base in type(made).__mro__]
    advice = next((ADVICE[base] for base in classes if base in ADVICE), f"is none of {KNOWN}")
    raise ValueError(f"{verb} a {type(made).__name__}, which {advice}")
