"""Conversion between graphs and networkx multigraphs, without loss.

A node is the number of an op; its attributes are the fields of the op's document (docs/formats.md#graph): `name`,
`kind`, `outputs`, ... An edge has the attribute `output`: the output's index within the source op, -1 for a control
edge.
"""

from __future__ import annotations

import networkx as nx

from gnnplace.formats.graphs import graph_of, op_fields
from gnnplace.graph import ComputationGraph


def to_networkx(graph: ComputationGraph) -> nx.MultiDiGraph:
    """The graph as a multigraph with nodes `0..ops-1`. Edges are keyed by output: an op may read several of another."""
    multigraph: nx.MultiDiGraph = nx.MultiDiGraph(name=graph.name)
    multigraph.add_nodes_from((op, op_fields(graph, op)) for op in range(graph.num_ops))
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_output.tolist(), strict=True)
    for src, dst, output in edges:
        multigraph.add_edge(src, dst, key=output, output=output)
    return multigraph


def from_networkx(graph: nx.MultiDiGraph | nx.DiGraph) -> ComputationGraph:
    """The graph of a networkx graph whose nodes and edges have the attributes of `to_networkx`. Ops are in node order.

    Raises ValueError (one line) if a node or an edge breaks a rule of the interchange format.
    """
    op_of = {node: index for index, node in enumerate(graph.nodes)}
    edges = [[op_of[src], fields.get("output"), op_of[dst]] for src, dst, fields in graph.edges(data=True)]
    ops = [dict(fields) for _, fields in graph.nodes(data=True)]
    document = {"format": "gnnplace.graph", "version": 1, "name": graph.name, "ops": ops, "edges": edges}
    return graph_of(document)
