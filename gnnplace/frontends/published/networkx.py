"""Graphs as networkx multigraphs, both ways and without loss.

A node is an op's number; its attributes are the fields of its document (docs/formats.md#graph): `name`, `kind`,
`outputs`, ... An edge has the attribute `output`: the index within its source op, -1 for a control edge.
"""

from __future__ import annotations

import networkx as nx

from gnnplace.formats.graphs import graph_of, op_fields
from gnnplace.graph import ComputationGraph


def to_networkx(graph: ComputationGraph) -> nx.MultiDiGraph:
    """The graph as a multigraph with nodes `0..ops-1`.

    Edges are keyed by output: one op may feed several outputs to another.
    """
    found: nx.MultiDiGraph = nx.MultiDiGraph(name=graph.name)
    found.add_nodes_from((op, op_fields(graph, op)) for op in range(graph.num_ops))
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_output.tolist(), strict=True)
    for src, dst, output in edges:
        found.add_edge(src, dst, key=output, output=output)
    return found


def from_networkx(graph: nx.MultiDiGraph | nx.DiGraph) -> ComputationGraph:
    """The graph of a networkx graph whose nodes and edges have the attributes of `to_networkx`. Ops are in node order.

    Raises ValueError (one line) if a node or an edge breaks a rule of the interchange format.
    """
    number = {node: index for index, node in enumerate(graph.nodes)}
    edges = [[number[src], fields.get("output"), number[dst]] for src, dst, fields in graph.edges(data=True)]
    ops = [dict(fields) for _, fields in graph.nodes(data=True)]
    document = {"format": "gnnplace.graph", "version": 1, "name": graph.name, "ops": ops, "edges": edges}
    return graph_of(document)
