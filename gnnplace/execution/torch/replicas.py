"""The copies of variables that replicas have: how they are named, and which of them a micro-batch reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from gnnplace.graph import NONE, ComputationGraph

FIRST = ""  # the tag of the first replica that has a variable


def tags(graph: ComputationGraph) -> dict[str, list[str]]:
    """How the names of the copies of each variable of a traced step end, by its name: `["", "@r1"]`."""
    return {name: [tag for tag, _ in copies] for name, copies in _copies(graph).items()}


def _copies(graph: ComputationGraph) -> dict[str, list[tuple[str, int]]]:
    """The copies of each variable by its name: the tag and the op of each."""
    copies = graph.copies
    if copies is None:
        return {graph.op_names[op]: [(FIRST, op)] for op in _variables(graph)}
    by_name: dict[str, list[tuple[str, int]]] = {copies.original.op_names[op]: [] for op in _variables(copies.original)}
    for op in np.flatnonzero((copies.micro_batch == NONE) & ~copies.added).tolist():
        if (of := by_name.get(copies.original.op_names[int(copies.source[op])])) is not None:
            of.append((f"@r{copies.replica[op]}" if of else FIRST, op))
    return by_name


def _variables(graph: ComputationGraph) -> list[int]:
    return np.flatnonzero(graph.kind.among(["parameter", "buffer"])).tolist()


class ReplicaBuffers:
    """The buffers of each replica of a step, for a module that runs its micro-batches one after another.

    All begin with those of the module.
    """

    def __init__(self, graph: ComputationGraph, module: nn.Module) -> None:
        self._buffers = dict(module.named_buffers())
        self._read = _read_by_micro_batches(graph, list(self._buffers)) if _has_replicas(graph) else {}
        given = tags(graph)
        self._values = {
            (name, tag): value.detach().clone()
            for name, value in self._buffers.items()
            for tag in given[name]
            if self._read
        }

    @contextmanager
    def of(self, micro_batch: int) -> Iterator[None]:
        """A context in which the module has the buffers that a micro-batch reads, and changes these."""
        chosen = {name: self._values[name, read[micro_batch]] for name, read in self._read.items()}
        with torch.no_grad():
            for name, value in chosen.items():
                self._buffers[name].copy_(value)
        yield
        with torch.no_grad():
            for name, value in chosen.items():
                value.copy_(self._buffers[name])

    def settle(self) -> None:
        """Leaves the buffers of the first replica in the module."""
        with torch.no_grad():
            for name in self._read:
                self._buffers[name].copy_(self._values[name, FIRST])

    def values(self) -> dict[str, Tensor]:
        """The buffers of all replicas, by name and tag."""
        if not self._read:
            return self._buffers
        return {f"{name}{tag}": value for (name, tag), value in self._values.items()}


def _has_replicas(graph: ComputationGraph) -> bool:
    return graph.copies is not None and graph.copies.replicas > 1


def _read_by_micro_batches(graph: ComputationGraph, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The tag of the copy of each variable that each micro-batch reads, the first where it reads none."""
    copies = graph.copies
    assert copies is not None
    once = (copies.micro_batch == NONE) & ~graph.phase.among(["update"])
    read, variables = {name: [FIRST] * copies.micro_batches for name in names}, _copies(graph)
    for name, (tag, variable) in ((each, copy) for each in names for copy in variables[each]):
        behind, seen = [variable], {variable}
        while behind:
            op = behind.pop()
            for reader in graph.edge_dst[graph.out_ptr[op] : graph.out_ptr[op + 1]].tolist():
                if (micro_batch := int(copies.micro_batch[reader])) != NONE:
                    read[name][micro_batch] = tag
                elif once[reader] and reader not in seen:
                    seen.add(reader)
                    behind.append(reader)
    return read
