"""Parts: modules that a runtime keeps on one device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import ComputationGraph
from gnnplace.runtimes.homes import Device
from gnnplace.runtimes.meetings import holder, shared_parameters
from gnnplace.units.modules import modules

HELD = ("parameter", "buffer")


class Together(NamedTuple):
    """The number of each op's part, and the part on the main device: `NONE` if nothing is bound to that.

    However parts are placed, the runtime runs them so.
    """

    part: Int64[np.ndarray, " ops"]
    main: int


class ModuleParts:
    """Modules that stand together: `of[m]` is the part of module m, the number of one of its modules."""

    def __init__(self, graph: ComputationGraph) -> None:
        module_of = modules(graph)
        self._graph, self._module = graph, module_of.module
        self.of = np.arange(module_of.num_modules)
        self.number = {name: number for number, name in enumerate(module_of.names)}

    def of_ops(self) -> Int64[np.ndarray, " ops"]:
        """The part of each op."""
        return self.of[self._module]

    def join_readers(self) -> None:
        """Puts every module beside the modules whose parameters it reads: a parameter is one tensor."""
        for pair in self._module[shared_parameters(self._graph)]:
            self.join(pair.tolist())

    def join(self, numbers: list[int]) -> None:
        """Puts the parts of some modules together."""
        parts = np.unique(self.of[numbers])
        self.of[np.isin(self.of, parts)] = parts[0]

    def apart(self, numbers: list[int]) -> bool:
        """Whether some modules are of several parts."""
        return len(set(self.of[numbers].tolist())) > 1

    def within(self, path: str) -> list[int]:
        """The modules at or below a path."""
        return [number for name, number in self.number.items() if name == path or name.startswith(f"{path}.")]

    def holding(self, path: str) -> list[int]:
        """The modules at or below a path that holds tensors, and those with its tensors or its own code."""
        graph = self._graph
        held = [op for op in np.flatnonzero(graph.kind.among(HELD)).tolist() if holder(graph.op_names[op]) == path]
        ops = np.append(np.flatnonzero(graph.layer.among([path])), held).astype(np.int64)
        return [*self.within(path), *np.unique(self._module[ops]).tolist()]


def numbers_of(devices: Iterable[Device]) -> list[int]:
    """The modules whose numbers stand for devices while parts are found."""
    return [int(device) for device in devices]
