"""The edges of an OpenVINO IR: the source of each layer's inputs, and a topological order of the layers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from gnnplace.frontends.openvino.xml import Layer, LayerDocument

Source = tuple[int, int]  # (index of the layer in the file, index of its output)


def wired(document: LayerDocument) -> tuple[list[list[Source]], list[int]]:
    """The sources of each layer's inputs, and the layers in topological order, in that of the file wherever possible.

    Raises ValueError for repeated ids, edges from or to a missing port, edges from a result, inputs without an edge or
    with two, and cycles.
    """
    layers = document.layers
    if not layers:
        raise ValueError("has no layers; is this an OpenVINO IR?")
    index_of: dict[int, int] = {}
    for index, layer in enumerate(layers):
        if layer.id in index_of:
            raise ValueError(f"{layer}: its id {layer.id} is that of {layers[index_of[layer.id]]}, too")
        index_of[layer.id] = index
    sources = _sources(document, index_of)
    return sources, _order(layers, sources)


def _sources(document: LayerDocument, index_of: dict[int, int]) -> list[list[Source]]:
    layers = document.layers
    outputs = _port_numbers(layers, [[port.id for port in layer.outputs] for layer in layers])
    inputs = _port_numbers(layers, [layer.inputs for layer in layers])
    sources: list[list[Source | None]] = [[None] * len(layer.inputs) for layer in layers]
    for edge in document.edges:
        source, destination = edge[:2], edge[2:]
        for end, ports, what in ((source, outputs, "output"), (destination, inputs, "input")):
            if end not in ports:
                owner = layers[index_of[end[0]]] if end[0] in index_of else None
                reason = f"no layer has id {end[0]}" if owner is None else f"{owner} has no {what} port {end[1]}"
                raise ValueError(f"edge {list(edge)}: {reason}")
        producer, reader = layers[index_of[source[0]]], layers[index_of[destination[0]]]
        if producer.kind == "Result":
            raise ValueError(f"edge {list(edge)}: {producer} is a result, which no layer may read")
        reader_sources, number = sources[index_of[reader.id]], inputs[destination]
        if reader_sources[number] is not None:
            raise ValueError(f"edge {list(edge)}: {reader} has another edge to its input {number}")
        reader_sources[number] = (index_of[producer.id], outputs[source])
    return [_complete(layer, layer_sources) for layer, layer_sources in zip(layers, sources, strict=True)]


def _port_numbers(layers: Sequence[Layer], ports: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """The index of each (layer id, port id) among the inputs or outputs of its layer."""
    for layer, ids in zip(layers, ports, strict=True):
        if len(set(ids)) < len(ids):
            raise ValueError(f"{layer}: has two ports of one id")
    return {
        (layer.id, port): number for layer, ids in zip(layers, ports, strict=True) for number, port in enumerate(ids)
    }


def _complete(layer: Layer, sources: Sequence[Source | None]) -> list[Source]:
    """The sources of a layer's inputs. Raises ValueError if an input has none."""
    complete = [source for source in sources if source is not None]
    if len(complete) < len(sources):
        raise ValueError(f"{layer}: {len(complete)} of its {len(sources)} inputs have an edge")
    return complete


def _order(layers: Sequence[Layer], sources: Sequence[Sequence[Source]]) -> list[int]:
    """Kahn's algorithm; of the layers whose inputs are ready, the first in the file comes next."""
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
