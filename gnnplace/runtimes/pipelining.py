"""What `torch.distributed.pipelining` keeps together: blocks, shared parameters, readers of inputs, what runs again.

PyTorch cuts the forward pass where a module begins. A parameter is in one stage, the first stage alone takes inputs,
and a stage runs once. Blocks with residual sums stay whole: a cut within one would send its argument, too.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from gnnplace.frontends.origin import LOSS_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.runtimes.homes import LATER, homes_of, outermost
from gnnplace.runtimes.meetings import meetings
from gnnplace.runtimes.parts import ModuleParts, Together
from gnnplace.units.modules import modules


def kept_together(graph: ComputationGraph) -> Together:
    """What PyTorch's pipelines keep together."""
    parts = ModuleParts(graph)
    parts.join_readers()
    readers = _readers_of_inputs(graph)
    if readers:
        parts.join([0, *readers])
    while blocks := [within for path in _blocks(graph, parts) if parts.apart(within := parts.within(path))]:
        for within in blocks:
            parts.join(within)
    for again in _again(graph):
        parts.join(again)
    return Together(parts.of_ops(), NONE)


def _readers_of_inputs(graph: ComputationGraph) -> list[int]:
    """The modules whose forward pass reads an input, or a view of one."""
    data = np.flatnonzero(graph.edge_data != NONE)
    root, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    reads = graph.canonical_kind.among(["input"])[root]
    reads &= ~graph.layer.among([LOSS_LAYER])[reader] & ~graph.phase.among(LATER)[reader]
    return np.unique(modules(graph).module[reader[reads]]).tolist()


def _blocks(graph: ComputationGraph, parts: ModuleParts) -> list[str]:
    """Divided modules whose own code uses an argument beside what their parts return."""
    divided = outermost(homes_of(graph, parts.of.tolist()), {}, {})
    met = meetings(graph, divided.map, int(parts.of[-1]))
    return list(dict.fromkeys(meeting.where for meeting in met if meeting.where and not meeting.own))


def _again(graph: ComputationGraph) -> list[list[int]]:
    """The modules between the first and the last run of one that runs again; one that never runs, with that before."""
    module_of = modules(graph)
    number = {name: place for place, name in enumerate(module_of.names)}
    forward = graph.kernel & (graph.layer.index != NONE) & ~graph.phase.among(LATER)
    layers = (graph.layer[op] for op in np.flatnonzero(forward).tolist())
    calls = [name for name, _ in groupby(layer for layer in layers if layer in number)]
    runs = {name: [place for place, call in enumerate(calls) if call == name] for name in dict.fromkeys(calls)}
    repeated = [
        [number[str(call)] for call in calls[each[0] : each[-1] + 1]] for each in runs.values() if len(each) > 1
    ]
    never = [[max(0, place - 1), place] for name, place in number.items() if name not in runs]
    return repeated + never
