"""A training step as a function of flat tensors, for make_fx: parameters, buffers, the optimiser's state, inputs.

It computes the loss and its gradients by `loss.backward()`, then an update of each parameter that has a gradient and a
rule. Every leaf that requires a gradient gets one, as in eager PyTorch: inputs, too, and parameters that no optimiser
updates. Gradients are clipped before updates, as `torch.nn.utils` does it, but gradient by gradient, so that each has
ops of its own in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn

from gnnplace.frontends.origin import CLIP_LAYER, LOSS_LAYER, ROOT_LAYER
from gnnplace.frontends.torch.functional import called_with, replaced
from gnnplace.frontends.torch.inputs import ExampleInputs, Inputs, as_written
from gnnplace.frontends.torch.optimizers import Optimizer, built, rules
from gnnplace.frontends.torch.refusals import check_strided
from gnnplace.frontends.torch.scopes import Scope, Scopes, functions_of

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Argument:
    """A placeholder of the traced graph.

    For the optimiser's state, `name` is that of the parameter and `key` that of the state. In a step of several
    micro-batches `copy` is the tag of its micro-batch or, but for the first one, of its replica: `@0`, `@r1`.
    """

    role: Literal["parameter", "state", "buffer", "input"]
    name: str
    key: str = ""
    copy: str = ""

    @property
    def of_step(self) -> str:
        """Its name among those of all micro-batches and replicas: `input_0@3`, `weight@r1`, `weight/exp_avg`."""
        return f"{self.name}{f'/{self.key}' if self.key else ''}{self.copy}"


@dataclass(frozen=True)
class Updating:
    """The way from gradients to updates.

    Gradients are clipped by norm or value. Raises ValueError for a number that is not above 0.
    """

    optimizer: Optimizer = "adam"
    clip_norm: float | None = None
    clip_value: float | None = None

    def __post_init__(self) -> None:
        for name in ("clip_norm", "clip_value"):
            if (most := getattr(self, name)) is not None and not most > 0:
                raise ValueError(f"{name}: {most!r} is not above 0; None clips nothing")


def layers_of(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """The modules that own each parameter or buffer; a tied one has several."""
    owners: dict[int, list[str]] = {}
    all_names = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in all_names:
        owners.setdefault(id(tensor), []).append(as_written(name.rpartition(".")[0]) or ROOT_LAYER)
    distinct = [*module.named_parameters(), *module.named_buffers()]
    return {name: tuple(owners[id(tensor)]) for name, tensor in distinct}


class FlatStep:
    """The step of a module as a function `run` of its flat `tensors`, which `arguments` describe.

    Raises ValueError for an optimiser that can't update the module.
    """

    def __init__(self, module: nn.Module, loss: Loss, inputs: Inputs, updating: Updating) -> None:
        self._module, self._loss, self._updating, self._inputs = module, loss, updating, ExampleInputs(inputs)
        self._scopes, self._keeps_casts = Scopes(), torch.is_autocast_cache_enabled()
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._names = (*parameters, *buffers)
        self._layers = layers_of(module)
        self._rules = rules(built(updating.optimizer, module), module)
        self._tables = sparse_tables(module)
        state = [
            (name, key, shape, dtype)
            for name, rule in self._rules.items()
            for key, (shape, dtype) in rule.cost(parameters[name]).state.items()
        ]
        empty = (torch.empty(shape, dtype=dtype, device="meta") for _, _, shape, dtype in state)
        self.tensors = (*parameters.values(), *buffers.values(), *empty, *self._inputs.tensors)
        self.arguments = (
            *(Argument("parameter", name) for name in parameters),
            *(Argument("buffer", name) for name in buffers),
            *(Argument("state", name, key) for name, key, _, _ in state),
            *(Argument("input", f"input_{index}") for index in range(len(self._inputs.tensors))),
        )

    def run(self, *tensors: Tensor) -> list[Tensor | None]:
        """The function to be traced; returns the loss and the gradient of each input, None where there is none."""
        torch.set_autocast_cache_enabled(self._keeps_casts)  # make_fx switches it off, and back at its end
        rest = iter(tensors)
        before = dict(zip(self._names, tensors, strict=False))
        values = dict(zip(self._names, islice(rest, len(self._names)), strict=True))
        states = {
            name: {key: next(rest) for key in rule.cost(values[name]).state} for name, rule in self._rules.items()
        }
        inputs = list(rest)
        loss, lookups = self._backward(values, inputs)
        gradients = self._gradients(values, lookups)
        with torch.no_grad():
            for name, value in replaced(before, values):
                self._enter(name, "forward")
                before[name].copy_(value)
            for name, gradient in self._clipped(gradients).items():
                self._enter(name, "update")
                self._rules[name].update(values[name], gradient, states[name])
            for lookup in lookups:
                if lookup.table in self._rules and lookup.table not in gradients and lookup.gradient is not None:
                    self._enter(lookup.table, "update")
                    lookup.add_to(values[lookup.table], -self._sparse_rate(lookup.table))
        self._scopes.close()
        return [loss, *(tensor.grad for tensor in inputs)]

    def _backward(self, values: dict[str, Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, list[Lookup]]:
        """The loss, forward and backward, and the lookups in sparse tables.

        Leaves get their gradient as `grad`, and `values` the buffers that the module replaces.
        """
        lookups = list[Lookup]()
        with ExitStack() as hooks:
            self._scopes.follow_forward(self._module, hooks)
            note_lookups(self._tables, lookups, hooks)
            loss = self._differentiated(values, inputs)
        self._scopes.enter(Scope(LOSS_LAYER, "forward"))
        return loss, lookups

    def _differentiated(self, values: dict[str, Tensor], inputs: Sequence[Tensor]) -> Tensor:
        owners = {id(values[name]): self._layers[name][0] for name in self._names}

        def differentiated(module: nn.Module, *positional: Any, **keywords: Any) -> Tensor:
            loss = _checked(self._loss(module, *positional, **keywords))
            self._scopes.follow_backward(loss, owners)
            with gradients_kept(_foreign_leaves(loss, (*values.values(), *inputs))):
                loss.backward()  # within the call: a checkpoint calls its modules again, with these tensors
            return loss

        renamed = {f"module.{name}": tensor for name, tensor in values.items()}
        loss: Tensor = called_with(renamed, _Bound(self._module, differentiated), *self._inputs.call(inputs))
        values.update({name: renamed[f"module.{name}"] for name in values})
        return loss

    def _gradients(self, values: Mapping[str, Tensor], lookups: Sequence[Lookup]) -> dict[str, Tensor]:
        """The dense gradient of each parameter with a rule; that of a table is its own and that of its rows."""
        gradients: dict[str, Tensor] = {}
        for name in self._rules:
            if (gradient := values[name].grad) is not None:
                check_strided(f"module: {name}: its gradient", gradient)
                self._enter(name, "backward")
                # a zero tensor has no memory until it is copied
                gradients[name] = gradient.clone() if gradient._is_zerotensor() else gradient
        for lookup in lookups:
            if lookup.table in gradients and lookup.gradient is not None:
                self._enter(lookup.table, "backward")
                lookup.add_to(gradients[lookup.table])
        return gradients

    def _sparse_rate(self, table: str) -> float:
        """The learning rate of a table whose gradient is sparse. Raises ValueError if it has no sparse update."""
        rule, updating = self._rules[table], self._updating
        if not rule.is_plain_sgd:
            raise ValueError(
                f"module: {table}: optimizer {rule.name} has no sparse update; use 'sgd', or a dense embedding"
            )
        if updating.clip_norm or updating.clip_value:
            raise ValueError(f"module: {table}: clip_... is for dense gradients; use a dense embedding")
        return rule.rate

    def _clipped(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        def at(name: str | None) -> None:
            self._scopes.enter(Scope(CLIP_LAYER, "update")) if name is None else self._enter(name, "update")

        if self._updating.clip_norm is not None:
            gradients = clipped_by_norm(gradients, self._updating.clip_norm, at)
        if self._updating.clip_value is not None:
            gradients = clipped_by_value(gradients, self._updating.clip_value, at)
        return gradients

    def _enter(self, name: str, phase: Literal["forward", "backward", "update"]) -> None:
        self._scopes.enter(Scope(self._layers[name][0], phase))


def _checked(loss: object) -> Tensor:
    """The loss. Raises ValueError for what is no scalar tensor, and for one that depends on no parameter."""
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise ValueError(f"loss: {getattr(loss, 'shape', type(loss).__name__)}: a training step needs a scalar tensor")
    if not loss.requires_grad:
        raise ValueError("loss: depends on no parameter that requires a gradient, so there is no step to trace")
    return loss


def _foreign_leaves(loss: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The leaves of a loss that are none of the step's `tensors`, such as an attribute of the module."""
    leaves = [function.variable for function in functions_of(loss) if hasattr(function, "variable")]
    ids = set(map(id, tensors))
    return [leaf for leaf in leaves if id(leaf) not in ids]


@contextmanager
def gradients_kept(tensors: Sequence[Tensor]) -> Iterator[None]:
    """A context after which the tensors have the gradients that they had before."""
    before = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in zip(tensors, before, strict=True):
            tensor.grad = gradient


class _Bound(nn.Module):
    """The module and its loss as one module, so that `called_with` can replace the parameters of the first."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self._loss = loss

    def forward(self, *inputs: Any, **keywords: Any) -> Tensor:
        return self._loss(self.module, *inputs, **keywords)


def clipped_by_norm(
    gradients: Mapping[str, Tensor], most: float, at: Callable[[str | None], None]
) -> dict[str, Tensor]:
    """The gradients, all scaled down by one factor if their common norm exceeds `most`.

    This is algorithm 1 of Pascanu et al., "On the difficulty of training recurrent neural networks", 2013. `at(name)`
    precedes the ops for one gradient, `at(None)` those for all. The common norm needs every gradient, so the first
    update waits for the last gradient.
    """
    norms = []
    for name, gradient in gradients.items():
        at(name)
        norms.append(torch.linalg.vector_norm(gradient, 2.0))
    at(None)
    factor = torch.clamp(most / (torch.linalg.vector_norm(torch.stack(norms), 2.0) + 1e-6), max=1.0)
    scaled = {}
    for name, gradient in gradients.items():
        at(name)
        scaled[name] = gradient * factor
    return scaled


def clipped_by_value(
    gradients: Mapping[str, Tensor], most: float, at: Callable[[str | None], None]
) -> dict[str, Tensor]:
    """The gradients, with each element clamped to `-most` to `most`; `at(name)` precedes the ops for one gradient."""
    clamped = {}
    for name, gradient in gradients.items():
        at(name)
        clamped[name] = gradient.clamp(-most, most)
    return clamped


@dataclass(eq=False)
class Lookup:
    """A lookup in a sparse embedding: the indices of its rows and, after the backward pass, the rows' gradient."""

    table: str
    indices: Tensor
    gradient: Tensor | None = None

    def add_to(self, tensor: Tensor, factor: float = 1) -> None:
        """Adds the gradient of the rows times a factor to the table or to its dense gradient."""
        assert self.gradient is not None
        tensor.index_add_(0, self.indices.flatten(), self.gradient.flatten(0, -2), alpha=factor)


class _Rows(torch.autograd.Function):
    """The rows of a lookup. Their gradient goes to the lookup, not to the table."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, lookup: Lookup) -> Tensor:
        """The rows."""
        ctx.lookup = lookup
        ctx.set_materialize_grads(False)
        return rows.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> tuple[None, None]:
        """Notes the gradient of the rows."""
        ctx.lookup.gradient = gradient
        return None, None


def sparse_tables(module: nn.Module) -> dict[nn.Embedding, str]:
    """The trained sparse embeddings of a module, each with the name of its table, which several may share.

    Raises ValueError for one whose gradient is not that of each looked-up row.
    """
    name_of = {id(parameter): name for name, parameter in module.named_parameters()}
    tables = {part: name_of[id(part.weight)] for part in module.modules() if _is_sparse(part)}
    for part, name in tables.items():
        if part.padding_idx is not None or part.max_norm is not None or part.scale_grad_by_freq:
            raise ValueError(
                f"module: {name}: padding_idx, max_norm and scale_grad_by_freq are not known for sparse tables"
            )
    return tables


def _is_sparse(part: nn.Module) -> TypeGuard[nn.Embedding]:
    return isinstance(part, nn.Embedding) and part.sparse and part.weight.requires_grad


def note_lookups(tables: Mapping[nn.Embedding, str], lookups: list[Lookup], hooks: ExitStack) -> None:
    """Until `hooks` closes, appends all lookups in the tables to `lookups`."""
    for table, name in tables.items():
        hooks.enter_context(table.register_forward_hook(_lookup_hook(name, lookups)))


def _lookup_hook(name: str, lookups: list[Lookup]) -> Callable[..., Tensor]:
    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not output.requires_grad:
            return output
        lookups.append(Lookup(name, inputs[0]))
        rows: Tensor = _Rows.apply(output.detach().requires_grad_(), lookups[-1])
        return rows

    return note
