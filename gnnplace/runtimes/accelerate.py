"""What accelerate keeps together: modules with their weights and gradients, and all whose tensors meet in other code.

accelerate runs a module that its map names on the device of its weights and sends its arguments there. All other code
runs where its inputs are. So modules whose results meet in the code of a module around them stand together, and a
module whose code adds its argument to what its parts return (a residual block) is whole. The model's own tensors and
arguments are on the main device, where its results go, too: what meets them stands with the last module, beside the
loss.
"""

from __future__ import annotations

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.runtimes.homes import homes_of, outermost
from gnnplace.runtimes.meetings import meetings
from gnnplace.runtimes.parts import ModuleParts, Together, numbers_of


def kept_together(graph: ComputationGraph) -> Together:
    """What accelerate keeps together."""
    parts = ModuleParts(graph)
    parts.join_readers()
    while groups := _next(graph, parts):
        for numbers in groups:
            parts.join(numbers)
    last = int(parts.of[-1])
    return Together(parts.of_ops(), last if _has_main(graph, parts) else NONE)


def _has_main(graph: ComputationGraph, parts: ModuleParts) -> bool:
    """Whether the model itself holds tensors, or its code uses its arguments beside what modules return."""
    divided, elsewhere = outermost(homes_of(graph, parts.of.tolist()), {}, {}), NONE
    return bool(divided.bare or meetings(graph, divided.map, elsewhere))


def _next(graph: ComputationGraph, parts: ModuleParts) -> list[list[int]]:
    """The next modules that have to stand together: what is torn before what meets, arguments before own results.

    A later kind shows only once the earlier ones are whole.
    """
    last = len(parts.of) - 1
    divided = outermost(homes_of(graph, parts.of.tolist()), {}, {})
    met = meetings(graph, divided.map, int(parts.of[last]))
    kinds = (
        [parts.holding(path) for path in divided.torn],
        [[last, *numbers_of(divided.bare.values())]] if divided.bare else [],
        [parts.within(meeting.where) for meeting in met if meeting.where and not meeting.own],
        [numbers_of(meeting.devices) for meeting in met if meeting.own or not meeting.where],
    )
    apart = ([numbers for numbers in groups if parts.apart(numbers)] for groups in kinds)
    return next((groups for groups in apart if groups), [])
