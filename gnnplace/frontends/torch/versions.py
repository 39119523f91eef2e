"""Reads after writes in place: an op that reads a tensor after its buffer was written reads an `alias` of it.

    h = linear(x)                  h = linear(x)
    part = h[:, :4]                part = h[:, :4]
    part.add_(1)                   part.add_(1)
    y = tanh(h)                    after = alias(h)      # on the buffer's device, after the write
                                   y = tanh(after)

In one memory both are the same. With several devices the left one would send `h` when `linear` ends, before the write.
Tensors of whose bytes none are written stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from operator import getitem

import torch
from torch import Tensor

from gnnplace.frontends.torch.buffers import overlap, same_view, shares, storage_of
from gnnplace.frontends.torch.calls import call_of

Node = torch.fx.Node


def reread_after_writes(graph: torch.fx.Graph) -> None:
    """Replaces the arguments of each node by their versions at the time when it runs.

    Raises ValueError for a write to a tensor that is not part of the step's state.
    """
    versions = _Versions(graph)
    for position, node in enumerate(list(graph.nodes)):
        versions.add(position, node)


class _Versions:
    """The writes to each storage up to the current node, and the nodes that read the present version of a tensor."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._first: dict[int, Node] = {}  # the first node with a tensor in each storage
        self._position: dict[Node, int] = {}
        self._writes: dict[int, list[tuple[int, Node, Tensor]]] = defaultdict(list)
        self._versions: dict[tuple[Node, int], Node] = {}  # by node and position of the last write

    def add(self, position: int, node: Node) -> None:
        """Replaces outdated arguments of the next node, except for tensors that it writes itself or does not read."""
        call = call_of(node)
        written, unread = ((), ()) if call is None else (call.written, call.unread)
        self._position[node] = self._position[_container(node)] if node.target is getitem else position
        if isinstance(tensor := node.meta.get("val"), Tensor):
            self._first.setdefault(storage_of(tensor), node)
        with self._graph.inserting_before(node):
            for source in node.all_input_nodes:
                value = source.meta.get("val")
                if isinstance(value, Tensor) and not any(value is other for other in (*written, *unread)):
                    node.replace_input_with(source, self._present(source))
        for tensor in written:
            if (first := self._first.get(storage_of(tensor))) is not None and first.op == "get_attr":
                what = (
                    "a tensor that is neither parameter nor buffer, whose values would be lost; give it to "
                    "register_buffer"
                )
                raise ValueError(f"module: {node.name!r} writes in place into {what}")
            self._writes[storage_of(tensor)].append((position, node, tensor))

    def _present(self, node: Node) -> Node:
        """A node with the present version of a node's tensor."""
        tensor: Tensor = node.meta["val"]
        later = [
            write
            for write in self._writes[storage_of(tensor)]
            if write[0] > self._position[node] and overlap(tensor, write[2])
        ]
        if not later:
            return node
        position, writer, _ = later[-1]
        if (node, position) not in self._versions:
            self._versions[node, position] = version = self._version(node, writer)
            self._position[version] = position
        return self._versions[node, position]

    def _version(self, node: Node, writer: Node) -> Node:
        """A new node with the present version: an alias of the buffer's first node, or the same views of that."""
        tensor: Tensor = node.meta["val"]
        if self._first[storage_of(tensor)] is node:
            alias = self._graph.create_node("call_function", torch.ops.aten.alias.default, (node,), name="alias")
            alias.meta = {**writer.meta, "val": tensor}
            return alias
        if node.target is getitem:
            item = self._graph.call_function(getitem, (self._view_again(_container(node), tensor), node.args[1]))
            item.meta = dict(node.meta)
            return item
        for parent in node.all_input_nodes:  # the result of a writer is the tensor that it has written
            if isinstance(value := parent.meta.get("val"), Tensor) and same_view(value, tensor):
                return self._present(parent)
        return self._view_again(node, tensor)

    def _view_again(self, view: Node, tensor: Tensor) -> Node:
        """A copy of a view of the tensor's storage, whose source is the present version."""

        def present(parent: Node) -> Node:
            value = parent.meta.get("val")
            return self._present(parent) if isinstance(value, Tensor) and shares(value, tensor) else parent

        return self._graph.node_copy(view, present)


def _container(node: Node) -> Node:
    """The node from whose outputs a `getitem` node picks one."""
    source = node.args[0]
    assert isinstance(source, Node)
    return source
