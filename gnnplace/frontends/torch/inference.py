"""A PyTorch module's inference as a ComputationGraph of ATen ops: its forward pass in eval mode, without gradients.

    step = inference(module, (tokens,), name="bert")

Nothing is computed and no memory is allocated: module and inputs may be on the `meta` device. make_fx traces the module
down to ATen ops, as in a training step. torch.export is not used, since many modules compute something else for an
exporter. Ops, aliases, layers, blocks and time steps are those of a training step's forward pass (see `builder`), with
the phase `forward`. Parameters and buffers are ops `variable` and `read`, without optimiser state. Every returned
tensor, however nested, is a result. The module is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from gnnplace.frontends.torch.buffers import shares
from gnnplace.frontends.torch.builder import TracedStep, traced_step
from gnnplace.frontends.torch.flat_step import Argument
from gnnplace.frontends.torch.functional import called_with, replaced
from gnnplace.frontends.torch.inputs import ExampleInputs, Inputs, uncompiled
from gnnplace.frontends.torch.known_values import KnownValues, Sizes
from gnnplace.frontends.torch.recurrences import Recurrences
from gnnplace.frontends.torch.refusals import check_built, explained, silenced
from gnnplace.frontends.torch.scopes import Scopes
from gnnplace.frontends.torch.trace import fake, trace_of


def inference(module: nn.Module, inputs: Inputs, *, name: str, sizes: Sizes = None) -> TracedStep:
    """Captures `module(*inputs)`, or `module(**inputs)` for a mapping, in eval mode.

    Containers of tensors may be nested. Raises ValueError (one line) if the module can't be traced, with the cause, the
    line and a remedy.
    """
    with uncompiled(), evaluating(module), KnownValues(sizes) as values, torch.no_grad(), Recurrences():
        call = _Call(module, inputs, values)
        program = _traced(call, sizes)
    if not program.graph.output_node().all_input_nodes:
        raise ValueError("module: returns no tensor, so there is nothing to compute; return the wanted tensors")
    return traced_step(trace_of(program, call.arguments, module, values.sizes()), name)


def example_output(module: nn.Module, inputs: Inputs, sizes: Sizes = None) -> Any:
    """The module's output for the inputs in eval mode, with fake tensors for tensors.

    Raises ValueError (one line) if the module needs the value of a tensor.
    """
    with uncompiled(), evaluating(module), KnownValues(sizes) as values, torch.no_grad(), Recurrences():
        call = _Call(module, inputs, values)
        try:
            return call.output()
        except Exception as error:  # the module may raise anything
            raise ValueError(explained(error, sizes)) from None


class _Call(nn.Module):
    """The module's call as a function from flat tensors (parameters, buffers, inputs) to those of its output."""

    def __init__(self, module: nn.Module, inputs: Inputs, held: KnownValues) -> None:
        super().__init__()
        check_built(module)
        self._module = (module,)  # in a tuple: its parameters are arguments, not parts of this module
        self._inputs, self._keeps_casts = ExampleInputs(inputs), torch.is_autocast_cache_enabled()
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._names = (*parameters, *buffers)
        tensors = (*parameters.values(), *buffers.values(), *self._inputs.tensors)
        self.tensors = tuple(map(fake, tensors))
        self.arguments = (
            *(Argument("parameter", name) for name in parameters),
            *(Argument("buffer", name) for name in buffers),
            *(Argument("input", f"input_{index}") for index in range(len(self._inputs.tensors))),
        )
        held.hold(self.tensors, tensors, self.arguments)

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        torch.set_autocast_cache_enabled(self._keeps_casts)  # make_fx switches it off, and back at its end
        (module,), scopes = self._module, Scopes()
        before = dict(zip(self._names, tensors, strict=False))
        values = dict(before)
        with ExitStack() as hooks:
            scopes.follow_forward(module, hooks)
            results = list(tensors_in(called_with(values, module, *self._inputs.call(tensors[len(self._names) :]))))
        for name, value in list(replaced(before, values)):
            # a result that shares the buffer keeps its value
            results = [result.clone() if shares(result, before[name]) else result for result in results]
            before[name].copy_(value)
        scopes.close()
        return results

    def output(self) -> Any:
        """The module's output in its own containers."""
        (module,) = self._module
        values = dict(zip(self._names, self.tensors, strict=False))
        return called_with(values, module, *self._inputs.call(self.tensors[len(self._names) :]))


def _traced(call: _Call, sizes: Sizes) -> torch.fx.GraphModule:
    """The call as flat ATen ops. Raises ValueError if it can't be traced."""
    with silenced():
        try:
            return make_fx(call.forward, tracing_mode="real")(*call.tensors)
        except Exception as error:  # the module may raise anything
            raise ValueError(explained(error, sizes)) from error


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Sets eval mode; afterwards restores the attributes of all submodules, so that no fake tensor stays in them."""
    before = [(part, dict(vars(part))) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)


def tensors_in(value: object) -> Iterator[Tensor]:
    """The tensors in a module's output, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value):
        yield from tensors_in([getattr(value, field.name) for field in fields(value)])


def with_tensors(value: Any, tensors: Iterable[Tensor]) -> Any:
    """A copy of a module's output, in its own containers, with its tensors replaced, in order, by `tensors`.

    Raises ValueError for a container that can't be copied.

    >>> import torch
    >>> with_tensors({"logits": torch.zeros(1), "rest": [None]}, [torch.ones(1)])
    {'logits': tensor([1.]), 'rest': [None]}
    """
    replacements = {id(old): new for old, new in zip(tensors_in(value), tensors, strict=True)}
    try:
        return deepcopy(value, replacements)
    except Exception as error:  # a container may raise anything
        cause = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"module: its output, a {type(value).__name__}, can't be copied: {cause}") from None
