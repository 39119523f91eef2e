"""Sparse embeddings of a training step: their tables have no dense
gradient, and plain SGD updates the looked-up rows in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from torch import Tensor, nn

from gnnplace.frontends.torch.updates import Rule


class Lookup(NamedTuple):
    """The rows that a sparse embedding yielded, a leaf of the step's gradient, and where they lie in its table."""

    table: str
    indices: Tensor
    rows: Tensor

    def update(self, table: Tensor, gradient: Tensor, rate: float) -> None:
        """Subtracts the gradient of the rows, times the rate."""
        table.index_add_(0, self.indices.flatten(), gradient.flatten(0, -2), alpha=-rate)


def sparse_tables(module: nn.Module, rules: Mapping[str, Rule]) -> dict[str, nn.Embedding]:
    """The trained sparse embeddings by the name of their table.

    Raises ValueError for another optimiser than plain SGD, and where a step would not be one update of each row that is
    looked up.
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
    """Until `hooks` closes, what is looked up in the tables is noted in `lookups`."""
    for name, table in tables.items():
        hooks.enter_context(table.register_forward_hook(_noting(name, lookups)))


def _noting(name: str, lookups: list[Lookup]) -> Callable[..., Tensor]:
    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        lookups.append(Lookup(name, inputs[0], output.detach().requires_grad_()))
        return lookups[-1].rows

    return note
