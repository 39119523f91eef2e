"""How the layers of an OpenVINO IR hang together: where each input comes from, and an order in which they can run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from gnnplace.frontends.openvino.xml import Layer, LayerDocument

Source = tuple[int, int]  # (layer by its place in the file, its output by its place)


def wired(document: LayerDocument) -> tuple[list[list[Source]], list[int]]:
    """The sources of each layer's inputs, and the layers in topological order, that of the file wherever it is one.

    Raises ValueError for ids that occur twice, edges from or to what there is not, or from a result, inputs without an
    edge or with two, and cycles.
    """
    layers = document.layers
    if not layers:
        raise ValueError("has no layers; is this an OpenVINO IR?")
    places: dict[int, int] = {}
    for index, layer in enumerate(layers):
        if layer.id in places:
            raise ValueError(f"{layer}: its id {layer.id} is that of {layers[places[layer.id]]}, too")
        places[layer.id] = index
    sources = _sources(document, places)
    return sources, _order(layers, sources)


def _sources(document: LayerDocument, places: dict[int, int]) -> list[list[Source]]:
    made = {
        (layer.id, port): number
        for layer in document.layers
        for port, number in _numbered(layer, [p.id for p in layer.outputs])
    }
    asked = {(layer.id, port): number for layer in document.layers for port, number in _numbered(layer, layer.inputs)}
    found: list[list[Source | None]] = [[None] * len(layer.inputs) for layer in document.layers]
    for edge in document.edges:
        source, destination = edge[:2], edge[2:]
        for end, ports, what in ((source, made, "output"), (destination, asked, "input")):
            if end not in ports:
                owner = document.layers[places[end[0]]] if end[0] in places else None
                there_is = f"no layer has id {end[0]}" if owner is None else f"{owner} has no {what} port {end[1]}"
                raise ValueError(f"edge {list(edge)}: {there_is}")
        if (result := document.layers[places[source[0]]]).kind == "Result":
            raise ValueError(f"edge {list(edge)}: {result} is a result, which no layer may read")
        inputs, number = found[places[destination[0]]], asked[destination]
        if inputs[number] is not None:
            raise ValueError(
                f"edge {list(edge)}: {document.layers[places[destination[0]]]} has another edge to its input {number}"
            )
        inputs[number] = (places[source[0]], made[source])
    complete = [[source for source in inputs if source is not None] for inputs in found]
    for layer, given in zip(document.layers, complete, strict=True):
        if len(given) < len(layer.inputs):
            raise ValueError(f"{layer}: {len(given)} of its {len(layer.inputs)} inputs have an edge")
    return complete


def _numbered(layer: Layer, ports: Sequence[int]) -> list[tuple[int, int]]:
    """The ids of a layer's inputs or outputs, numbered through."""
    if len(set(ports)) < len(ports):
        raise ValueError(f"{layer}: has two ports of one id")
    return [(port, number) for number, port in enumerate(ports)]


def _order(layers: Sequence[Layer], sources: Sequence[Sequence[Source]]) -> list[int]:
    """Kahn's algorithm; of the layers that can run, the first in the file is next."""
    readers: list[list[int]] = [[] for _ in layers]
    missing = [len(inputs) for inputs in sources]
    for index, inputs in enumerate(sources):
        for source, _ in inputs:
            readers[source].append(index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(layers):
        stuck = layers[next(index for index, count in enumerate(missing) if count)]
        raise ValueError(f"{stuck}: lies on or behind a cycle; a step's graph must be acyclic")
    return order
