"""What accelerate keeps together: modules with their weights and gradients, and all whose tensors meet in other code.

accelerate runs a module that its map names on the device of its weights and sends its arguments there. All other code
runs where its inputs are. So modules whose results meet in the code of a module around them stand together, and a
module whose code adds its argument to what its parts return (a residual block) is whole. The model's own tensors and
arguments are on the main device, where its results go, too: what meets them stands with the last module, beside the
loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.runtimes.homes import Device, homes_of, outermost
from gnnplace.runtimes.meetings import holder, meetings, shared_parameters
from gnnplace.units.modules import Modules, modules

HELD = ("parameter", "buffer")


class Together(NamedTuple):
    """The number of each op's part, and the part on the main device: `NONE` if nothing is bound to that.

    However parts are placed, accelerate runs them so.
    """

    part: Int64[np.ndarray, " ops"]
    main: int


def kept_together(graph: ComputationGraph) -> Together:
    """What accelerate keeps together."""
    module_of = modules(graph)
    parts = _Parts(graph, module_of)
    for pair in module_of.module[shared_parameters(graph)]:
        parts.join(pair.tolist())
    while groups := _next(graph, parts):
        for numbers in groups:
            parts.join(numbers)
    last = int(parts.of[-1])
    return Together(parts.of[module_of.module], last if _has_main(graph, parts) else NONE)


def _has_main(graph: ComputationGraph, parts: _Parts) -> bool:
    """Whether the model itself holds tensors, or its code uses its arguments beside what modules return."""
    divided, elsewhere = outermost(homes_of(graph, parts.of.tolist()), {}, {}), NONE
    return bool(divided.bare or meetings(graph, divided.map, elsewhere))


def _next(graph: ComputationGraph, parts: _Parts) -> list[list[int]]:
    """The next modules that have to stand together: what is torn before what meets, arguments before own results.

    A later kind shows only once the earlier ones are whole.
    """
    last = len(parts.of) - 1
    divided = outermost(homes_of(graph, parts.of.tolist()), {}, {})
    met = meetings(graph, divided.map, int(parts.of[last]))
    kinds = (
        [parts.holding(path) for path in divided.torn],
        [[last, *_numbers(divided.bare.values())]] if divided.bare else [],
        [parts.within(meeting.where) for meeting in met if meeting.where and not meeting.own],
        [_numbers(meeting.devices) for meeting in met if meeting.own or not meeting.where],
    )
    apart = ([numbers for numbers in groups if parts.apart(numbers)] for groups in kinds)
    return next((groups for groups in apart if groups), [])


def _numbers(devices: Iterable[Device]) -> list[int]:
    return [int(device) for device in devices]


class _Parts:
    """Modules that stand together: `of[m]` is the part of module m, the number of one of its modules."""

    def __init__(self, graph: ComputationGraph, module_of: Modules) -> None:
        self._graph, self._module = graph, module_of.module
        self.of = np.arange(module_of.num_modules)
        self.number = {name: number for number, name in enumerate(module_of.names)}

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
