"""One training step of a PyTorch module as one flat graph of ATen calls, under fake tensors: no memory, no arithmetic.

What is traced is the loss, `autograd.grad` of every trained parameter, and one fused update for each that has a gradient. A table of
`nn.Embedding(sparse=True)` has no dense gradient: plain SGD updates its looked-up rows in place. Every node carries its scope.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, no_type_check

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from gnnplace.frontends.torch.refusals import NEEDS_VALUES, check_built, explained, silenced
from gnnplace.frontends.torch.scopes import ROOT_LAYER, Scope, Scopes

Optimizer = Literal["adam", "sgd"]
Loss = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Argument:
    """What a placeholder of the traced graph is. `name` is a parameter's for the optimiser's state."""

    role: Literal["parameter", "state", "buffer", "input"]
    name: str


@dataclass(frozen=True)
class Trace:
    """The traced step: `arguments` in the order of the graph's placeholders; `layers` that own each parameter and buffer.

    `constants` are the tensors that the step holds itself, by the target of their `get_attr` node.
    """

    graph: torch.fx.Graph
    arguments: tuple[Argument, ...]
    layers: dict[str, tuple[str, ...]]
    constants: dict[str, Tensor]


def trace(module: nn.Module, loss: Loss, inputs: Sequence[Tensor], optimizer: Optimizer) -> Trace:
    """Traces `loss(module, *inputs)`, its gradient and the optimiser's update of every parameter that has one.

    Raises ValueError where the loss is not a scalar, depends on no parameter, or the step on the values of its tensors, and for
    sparse embeddings with another optimiser than plain SGD.
    """
    check_built(module)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    step = _Step(module, loss, optimizer)
    with mode, CompositeLstm(), silenced():
        tensors = [fake(tensor) for tensor in (*step.tensors, *inputs)]
        try:
            program = make_fx(step.run, tracing_mode="real")(*tensors)
        except NEEDS_VALUES as error:
            raise ValueError(explained(error)) from error
    arguments = (*step.arguments, *(Argument("input", f"input_{index}") for index in range(len(inputs))))
    return trace_of(program, arguments, module)


def trace_of(program: torch.fx.GraphModule, arguments: tuple[Argument, ...], module: nn.Module) -> Trace:
    """What make_fx traced of a module, with `arguments` for its placeholders, without views and notes for profilers that are no ops."""
    _drop_notes(program.graph)
    _fold_views(program.graph)
    constants = {node.target: getattr(program, node.target) for node in program.graph.nodes if node.op == "get_attr"}
    return Trace(program.graph, arguments, _layers(module), constants)


def _drop_notes(graph: torch.fx.Graph) -> None:
    """Drops what `torch.profiler.record_function` leaves: the ends first, which take what the beginnings make."""
    notes = [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "profiler"]
    for node in reversed(notes):
        graph.erase_node(node)


def _fold_views(graph: torch.fx.Graph) -> None:
    """Replaces a view that equals an earlier tensor (`detach`, a transpose of a transpose) by that tensor, and drops what nobody uses."""
    seen: dict[tuple[object, ...], torch.fx.Node] = {}
    for node in graph.nodes:
        tensor = node.meta.get("val")
        if not isinstance(tensor, Tensor):
            continue
        view = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        pure = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
        if pure and view in seen:
            node.replace_all_uses_with(seen[view])
        else:
            seen[view] = node  # an op that writes in place is from now on that tensor
    graph.eliminate_dead_code()


def fake(tensor: Tensor) -> Tensor:
    """A fake tensor on the CPU like this one; what it holds and where it is (memory, `meta`, fake) does not matter."""
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    return made.requires_grad_(isinstance(tensor, nn.Parameter) and tensor.requires_grad)


class CompositeLstm(TorchFunctionMode):
    """Within, torch takes an LSTM apart into the products of its cells; one call of oneDNN would be an op of unknown cost."""

    @no_type_check  # a checker's frame would stand before the module's own in tracebacks
    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").split(".")[0] != "lstm":
            return func(*args, **(kwargs or {}))
        with torch.backends.mkldnn.flags(enabled=False):
            return func(*args, **(kwargs or {}))


def _layers(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """The modules that own each parameter or buffer: several where it is tied."""
    owners: dict[int, list[str]] = {}
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in named:
        owners.setdefault(id(tensor), []).append(name.rpartition(".")[0] or ROOT_LAYER)
    distinct = [*module.named_parameters(), *module.named_buffers()]
    return {name: tuple(owners[id(tensor)]) for name, tensor in distinct}


class _Bound(nn.Module):
    """The module and its loss as one module, so that `functional_call` can replace the parameters of the first."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._loss(self.module, *inputs)


class _Lookup(NamedTuple):
    """The rows that a sparse embedding yielded, a leaf of the step's gradient, and where they lie in its table."""

    table: str
    indices: Tensor
    rows: Tensor


class _Step:
    """The step as a function of flat tensors: parameters, buffers, optimiser state, inputs."""

    def __init__(self, module: nn.Module, loss: Loss, optimizer: Optimizer) -> None:
        self._bound = _Bound(module, loss)
        self._optimizer = optimizer
        self._scopes = Scopes()
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._names = (*parameters, *buffers)
        self._layers = _layers(module)
        self._tables = _sparse_tables(module, optimizer)
        self._lookups: list[_Lookup] = []
        self._trained = tuple(name for name, parameter in parameters.items() if parameter.requires_grad and name not in self._tables)
        state = [(name, tensor) for name in self._trained for tensor in _state(parameters[name], optimizer)]
        self.tensors = (*parameters.values(), *buffers.values(), *(tensor for _, tensor in state))
        self.arguments = (
            *(Argument("parameter", name) for name in parameters),
            *(Argument("buffer", name) for name in buffers),
            *(Argument("state", name) for name, _ in state),
        )

    def run(self, *tensors: Tensor) -> Tensor:
        """The traced function; returns the loss."""
        rest = iter(tensors)
        values = dict(zip(self._names, islice(rest, len(self._names)), strict=True))
        states = [tuple(islice(rest, _STATE_TENSORS[self._optimizer])) for _ in self._trained]
        loss = self._forward(values, tuple(rest))
        trained = [values[name] for name in self._trained]
        self._scopes.follow_backward(loss)
        gradients = torch.autograd.grad(loss, [*trained, *(lookup.rows for lookup in self._lookups)], allow_unused=True)
        with torch.no_grad():
            for name, parameter, gradient, state in zip(self._trained, trained, gradients[: len(trained)], states, strict=True):
                if gradient is not None:
                    self._scopes.enter(Scope(self._layers[name][0], "update"))
                    _update(parameter, gradient, state, self._optimizer)
            for (name, indices, _), gradient in zip(self._lookups, gradients[len(trained) :], strict=True):
                if gradient is not None:
                    self._scopes.enter(Scope(self._layers[name][0], "update"))
                    values[name].index_add_(0, indices.flatten(), gradient.flatten(0, -2), alpha=-SGD_RATE)
        self._scopes.close()
        return loss

    def _forward(self, values: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        with ExitStack() as hooks:
            self._scopes.follow_forward(self._bound.module, hooks)
            for name, table in self._tables.items():
                hooks.enter_context(table.register_forward_hook(self._note_lookup(name)))
            renamed = {f"module.{name}": tensor for name, tensor in values.items()}
            loss = functional_call(self._bound, renamed, inputs)
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            raise ValueError(f"loss: {getattr(loss, 'shape', type(loss).__name__)}: a training step needs a scalar tensor")
        if not loss.requires_grad:
            raise ValueError("loss: depends on no parameter that requires a gradient, so there is no step to trace")
        return loss

    def _note_lookup(self, name: str) -> Callable[..., Tensor]:
        def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            self._lookups.append(_Lookup(name, inputs[0], output.detach().requires_grad_()))
            return self._lookups[-1].rows

        return note


_STATE_TENSORS = {"adam": 3, "sgd": 0}
SGD_RATE = 0.1


def _sparse_tables(module: nn.Module, optimizer: Optimizer) -> dict[str, nn.Embedding]:
    """The trained sparse embeddings by the name of their table.

    Raises ValueError for another optimiser than plain SGD, and where a step would not be one update of each row that is looked up.
    """
    parts = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Embedding) and part.sparse]
    tables = {f"{name}.weight".removeprefix("."): part for name, part in parts if part.weight.requires_grad}
    if tables and optimizer != "sgd":
        raise ValueError(f"module: {next(iter(tables))}: optimizer {optimizer!r} has no sparse update; use 'sgd', or a dense embedding")
    users = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    for name, part in tables.items():
        if users[id(part.weight)] > 1:
            raise ValueError(f"module: {name}: a sparse table that is used as another parameter, too, has no sparse gradient there")
        if part.padding_idx is not None or part.max_norm is not None or part.scale_grad_by_freq:
            raise ValueError(f"module: {name}: padding_idx, max_norm and scale_grad_by_freq are not known for sparse tables")
    return tables


def _state(parameter: Tensor, optimizer: Optimizer) -> tuple[Tensor, ...]:
    """Adam keeps two moments and a counter for each parameter; plain SGD keeps nothing."""
    if optimizer == "sgd":
        return ()
    moments = (torch.empty_like(parameter, device="meta") for _ in range(2))
    return (*moments, torch.empty((), dtype=torch.float32, device="meta"))


def _update(parameter: Tensor, gradient: Tensor, state: tuple[Tensor, ...], optimizer: Optimizer) -> None:
    """One fused kernel a parameter, as TensorFlow's optimisers have it and PyTorch's `fused=True` (over lists)."""
    if optimizer == "sgd":
        settings: dict[str, Any] = {"weight_decay": 0.0, "momentum": 0.0, "lr": SGD_RATE, "dampening": 0.0}
        torch._fused_sgd_([parameter], [gradient], [], **settings, nesterov=False, maximize=False, is_first_step=False)
        return
    first, second, counter = state
    counter.add_(1)
    settings = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}
    torch._fused_adam_([parameter], [gradient], [first], [second], [], [counter], **settings, amsgrad=False, maximize=False)
