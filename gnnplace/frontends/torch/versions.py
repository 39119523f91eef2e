"""What a trace reads after a write in place: a tensor made before the write is taken anew from its buffer where
somebody reads it later.

    h = linear(x)                  h = linear(x)
    part = h[:, :4]                part = h[:, :4]
    part.add_(1)                   part.add_(1)
    y = tanh(h)                    after = alias(h)      # on the buffer's device, after the write
                                   y = tanh(after)

In one memory the two are the same. Over several devices the left one sends `h` when `linear` ends, before the write.
Tensors whose bytes no write touches stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from operator import getitem

import torch
from torch import Tensor

from gnnplace.frontends.torch.buffers import overlap, same_view, shares, storage_of
from gnnplace.frontends.torch.calls import call_of

Node = torch.fx.Node


def take_anew(graph: torch.fx.Graph) -> None:
    """Gives each node its arguments as they are when it runs.

    Raises ValueError for a write into what is no part of the step's state.
    """
    versions = _Versions(graph)
    for place, node in enumerate(list(graph.nodes)):
        versions.add(place, node)
    graph.eliminate_dead_code()


class _Versions:
    """Follows the graph node by node: what was written until now, and how a tensor is taken anew since."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._first: dict[int, Node] = {}  # of each storage the node that shows it first
        self._place: dict[Node, int] = {}
        self._writes: dict[int, list[tuple[int, Node, Tensor]]] = defaultdict(list)
        self._anew: dict[tuple[Node, int], Node] = {}

    def add(self, place: int, node: Node) -> None:
        """Replaces the arguments of the next node that are of before a write,
        but for what it writes itself, where the buffer lies.
        """
        call = call_of(node)
        written, unread = ((), ()) if call is None else (call.written, call.unread)
        self._place[node] = self._place[_picked(node)] if node.target is getitem else place
        if isinstance(tensor := node.meta.get("val"), Tensor):
            self._first.setdefault(storage_of(tensor), node)
        with self._graph.inserting_before(node):
            for source in node.all_input_nodes:
                value = source.meta.get("val")
                if isinstance(value, Tensor) and not any(value is each for each in (*written, *unread)):
                    node.replace_input_with(source, self._now(source))
        for each in written:
            if (first := self._first.get(storage_of(each))) is not None and first.op == "get_attr":
                what = (
                    "a tensor that is neither parameter nor buffer, whose values would be lost; give it to "
                    "register_buffer"
                )
                raise ValueError(f"module: {node.name!r} writes in place into {what}")
            self._writes[storage_of(each)].append((place, node, each))

    def _now(self, node: Node) -> Node:
        """The node's tensor as it is now."""
        tensor: Tensor = node.meta["val"]
        later = [
            write
            for write in self._writes[storage_of(tensor)]
            if write[0] > self._place[node] and overlap(tensor, write[2])
        ]
        if not later:
            return node
        place, writer, _ = later[-1]
        if (node, place) not in self._anew:
            self._anew[node, place] = made = self._taken(node, writer)
            self._place[made] = place
        return self._anew[node, place]

    def _taken(self, node: Node, writer: Node) -> Node:
        """The tensor out of its buffer: of the first node that shows it, by the same views."""
        tensor: Tensor = node.meta["val"]
        if self._first[storage_of(tensor)] is node:
            made = self._graph.create_node("call_function", torch.ops.aten.alias.default, (node,), name="alias")
            made.meta = {**writer.meta, "val": tensor}
            return made
        if node.target is getitem:
            made = self._graph.call_function(getitem, (self._again(_picked(node), tensor), node.args[1]))
            made.meta = dict(node.meta)
            return made
        for parent in node.all_input_nodes:  # what a writer returns is what it has written
            if isinstance(value := parent.meta.get("val"), Tensor) and same_view(value, tensor):
                return self._now(parent)
        return self._again(node, tensor)

    def _again(self, view: Node, tensor: Tensor) -> Node:
        """A view of the tensor's storage once more, of its source as that is now."""

        def now(parent: Node) -> Node:
            value = parent.meta.get("val")
            return self._now(parent) if isinstance(value, Tensor) and shares(value, tensor) else parent

        return self._graph.node_copy(view, now)


def _picked(node: Node) -> Node:
    """What makes the outputs of which a node picks one."""
    source = node.args[0]
    assert isinstance(source, Node)
    return source
