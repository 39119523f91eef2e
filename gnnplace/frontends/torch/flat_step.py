"""A training step as a function of flat tensors, for make_fx: parameters, buffers, the optimiser's state, inputs.

It computes, for each micro-batch in turn, the loss and its gradients by `autograd.grad`, then an update of each
parameter that has a gradient. Gradients are clipped before, as `torch.nn.utils` does it, but gradient by gradient, so
that each has ops of its own in the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gnnplace.frontends.origin import CLIP_LAYER, LOSS_LAYER, ROOT_LAYER
from gnnplace.frontends.torch.inputs import ExampleInputs, Inputs, as_written
from gnnplace.frontends.torch.optimizers import Optimizer, built, rules
from gnnplace.frontends.torch.scopes import Scope, Scopes
from gnnplace.frontends.torch.updates import Rule

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Argument:
    """A placeholder of the traced graph.

    For the optimiser's state, `name` is that of the parameter and `key` that of the state.
    """

    role: Literal["parameter", "state", "buffer", "input"]
    name: str
    key: str = ""


@dataclass(frozen=True)
class Updating:
    """The way from gradients to updates.

    Gradients are those of the mean loss of `accumulate` micro-batches, clipped by norm or value. Raises ValueError for
    a number that is not above 0.
    """

    optimizer: Optimizer = "adam"
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise ValueError(f"accumulate: {self.accumulate!r} is no number of micro-batches; at least 1")
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


def replaced(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The buffers that a call of a module has replaced by other tensors: their names and new tensors.

    Raises ValueError for a replaced parameter, and for another shape or dtype.
    """
    for name, new in after.items():
        old = before[name]
        if new is not old:
            if isinstance(old, nn.Parameter) or old.requires_grad:
                raise ValueError(
                    f"module: {name}: a call replaces this parameter; a step that is captured keeps its parameters"
                )
            if (new.shape, new.dtype) != (old.shape, old.dtype):
                was, now = (f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in (old, new))
                raise ValueError(
                    f"module: {name}: a call replaces this buffer, {was}, by {now}; a step keeps shapes and types"
                )
            yield name, new


class FlatStep:
    """The step of a module as a function `run` of its flat `tensors`, which `arguments` describe.

    Raises ValueError for an optimiser that can't update the module or its sparse embeddings.
    """

    def __init__(self, module: nn.Module, loss: Loss, inputs: Inputs, updating: Updating) -> None:
        self._bound, self._updating, self._inputs = _Bound(module, loss), updating, ExampleInputs(inputs)
        self._scopes = Scopes()
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._names = (*parameters, *buffers)
        self._layers = layers_of(module)
        all_rules = rules(built(updating.optimizer, module), module)
        self._tables = sparse_tables(module, all_rules)
        self._rates = {name: all_rules[name].rate for name in self._tables}
        self._rules = {name: rule for name, rule in all_rules.items() if name not in self._tables}
        if self._tables and (updating.accumulate > 1 or updating.clip_norm or updating.clip_value):
            raise ValueError(
                f"module: {next(iter(self._tables))}: accumulate and clip_... are for dense gradients; use a dense "
                "embedding"
            )
        state = [
            (name, key, shape, dtype)
            for name, rule in self._rules.items()
            for key, (shape, dtype) in rule.cost(parameters[name]).state.items()
        ]
        batches = self._inputs.tensors * updating.accumulate
        empty = (torch.empty(shape, dtype=dtype, device="meta") for _, _, shape, dtype in state)
        self.tensors = (*parameters.values(), *buffers.values(), *empty, *batches)
        self.arguments = (
            *(Argument("parameter", name) for name in parameters),
            *(Argument("buffer", name) for name in buffers),
            *(Argument("state", name, key) for name, key, _, _ in state),
            *(Argument("input", f"input_{index}") for index in range(len(batches))),
        )

    def run(self, *tensors: Tensor) -> Tensor:
        """The function to be traced; returns the loss."""
        rest = iter(tensors)
        before = dict(zip(self._names, tensors, strict=False))
        values = dict(zip(self._names, islice(rest, len(self._names)), strict=True))
        states = {
            name: {key: next(rest) for key in rule.cost(values[name]).state} for name, rule in self._rules.items()
        }
        loss, gradients, rows = self._gradients(values, rest)
        with torch.no_grad():
            for name, value in replaced(before, values):
                self._enter(name, "forward")
                before[name].copy_(value)
            for name, gradient in self._clipped(gradients).items():
                self._enter(name, "update")
                self._rules[name].update(values[name], gradient, states[name])
            for lookup, gradient in rows:
                self._enter(lookup.table, "update")
                lookup.update(values[lookup.table], gradient, self._rates[lookup.table])
        self._scopes.close()
        return loss

    def _gradients(
        self, values: dict[str, Tensor], rest: Iterator[Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], list[tuple[Lookup, Tensor]]]:
        """The mean loss of all micro-batches, its gradients by parameter, and those of the rows of each lookup."""
        count, total, losses = self._updating.accumulate, dict[str, Tensor](), []
        rows: list[tuple[Lookup, Tensor]] = []
        for _ in range(count):
            loss, lookups = self._forward(values, tuple(islice(rest, len(self._inputs.tensors))))
            losses.append(loss if count == 1 else loss / count)
            self._scopes.follow_backward(losses[-1])
            leaves = [*(values[name] for name in self._rules), *(lookup.rows for lookup in lookups)]
            gradients = torch.autograd.grad(losses[-1], leaves, allow_unused=True)
            gradients = tuple(  # a zero tensor has no memory until it is copied
                gradient.clone() if gradient is not None and gradient._is_zerotensor() else gradient
                for gradient in gradients
            )
            rows += [pair for pair in zip(lookups, gradients[len(self._rules) :], strict=True) if pair[1] is not None]
            with torch.no_grad():
                for name, gradient in zip(self._rules, gradients, strict=False):
                    if gradient is not None:
                        self._enter(name, "backward")
                        total[name] = total[name] + gradient if name in total else gradient
        self._scopes.enter(Scope(LOSS_LAYER, "forward"))
        with torch.no_grad():
            mean = sum(losses[1:], losses[0])
        return mean, {name: total[name] for name in self._rules if name in total}, rows

    def _forward(self, values: dict[str, Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, list[Lookup]]:
        lookups: list[Lookup] = []
        with ExitStack() as hooks:
            self._scopes.follow_forward(self._bound.module, hooks)
            note_lookups(self._tables, lookups, hooks)
            renamed = {f"module.{name}": tensor for name, tensor in values.items()}
            loss = called_with(renamed, self._bound, *self._inputs.call(inputs))
            values.update({name: renamed[f"module.{name}"] for name in values})  # with buffers that the module replaced
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            raise ValueError(
                f"loss: {getattr(loss, 'shape', type(loss).__name__)}: a training step needs a scalar tensor"
            )
        if not loss.requires_grad:
            raise ValueError("loss: depends on no parameter that requires a gradient, so there is no step to trace")
        return loss, lookups

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


def called_with(
    tensors: dict[str, Tensor], module: nn.Module, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """The output of the module with `tensors` as its parameters and buffers.

    Afterwards `tensors` holds the tensors by which the call has replaced them. The module keeps its own parameters;
    PyTorch's `functional_call` (2.13) leaves `tensors` in a submodule that has two names, since it restores what it has
    put there by the first name.

    >>> import torch
    >>> pair = nn.Sequential(linear := nn.Linear(1, 1), linear)
    >>> called = called_with({"0.weight": torch.zeros(1, 1)}, pair, (torch.ones(1),), {})
    >>> torch.equal(called, linear.bias), isinstance(linear.weight, nn.Parameter)
    (True, True)
    """
    before = [(part, dict(part._parameters), dict(part._buffers)) for part in module.modules()]
    originals = {
        id(tensor) for _, parameters, buffers in before for tensor in (*parameters.values(), *buffers.values())
    }
    replacements = dict(tensors)
    try:
        return functional_call(module, replacements, tuple(positional), dict(keywords))
    finally:
        tensors.update({name: tensor for name, tensor in replacements.items() if id(tensor) not in originals})
        for part, parameters, buffers in before:
            part._parameters.update(parameters)
            part._buffers.update(buffers)


class Lookup(NamedTuple):
    """A lookup in a sparse embedding: the `rows` that it yielded, a leaf of the step's gradient, and their indices."""

    table: str
    indices: Tensor
    rows: Tensor

    def update(self, table: Tensor, gradient: Tensor, rate: float) -> None:
        """Subtracts the gradient of the rows times the learning rate from the table."""
        table.index_add_(0, self.indices.flatten(), gradient.flatten(0, -2), alpha=-rate)


def sparse_tables(module: nn.Module, rules: Mapping[str, Rule]) -> dict[str, nn.Embedding]:
    """The trained sparse embeddings by the name of their table.

    Raises ValueError for another optimiser than plain SGD, and if a step would not update each looked-up row once.
    """
    parts = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Embedding) and part.sparse]
    tables = {f"{name}.weight".removeprefix("."): part for name, part in parts}
    tables = {table: part for table, part in tables.items() if table in rules}
    users = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    for name, part in tables.items():
        if not rules[name].is_plain_sgd:
            raise ValueError(
                f"module: {name}: optimizer {rules[name].name} has no sparse update; use 'sgd', or a dense embedding"
            )
        if users[id(part.weight)] > 1:
            raise ValueError(
                f"module: {name}: a sparse table that is used as another parameter, too, has no sparse gradient there"
            )
        if part.padding_idx is not None or part.max_norm is not None or part.scale_grad_by_freq:
            raise ValueError(
                f"module: {name}: padding_idx, max_norm and scale_grad_by_freq are not known for sparse tables"
            )
    return tables


def note_lookups(tables: Mapping[str, nn.Embedding], lookups: list[Lookup], hooks: ExitStack) -> None:
    """Until `hooks` closes, appends all lookups in the tables to `lookups`."""
    for name, table in tables.items():
        hooks.enter_context(table.register_forward_hook(_lookup_hook(name, lookups)))


def _lookup_hook(name: str, lookups: list[Lookup]) -> Callable[..., Tensor]:
    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        lookups.append(Lookup(name, inputs[0], output.detach().requires_grad_()))
        return lookups[-1].rows

    return note
