"""The placed graph for networkx, as GraphML and for Graphviz: every op with its device, module, phase, start and end."""

from __future__ import annotations

import io
import json

import networkx as nx
from matplotlib import colormaps
from matplotlib.colors import to_hex

from gnnplace.graph import CONTROL
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules


def to_networkx(problem: Problem, placement: Placement) -> nx.MultiDiGraph:
    """A multigraph of op names. Nodes have `device`, `module`, `kind`, `phase`, `start_ns` and `end_ns`; edges `output` and `bytes`.

    `phase` is empty where the graph has none; `output` is -1 and `bytes` 0 for a control edge; of a placement that has no step, nodes lack
    start and end.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> found = to_networkx(problem, gp.place(problem, "gpu"))
        >>> len(found) == problem.num_ops, {device for _, device in found.nodes(data="device")}
        (True, {'gpu:0'})
    """
    graph, found = problem.graph, modules(problem.graph)
    (result,) = simulate(problem, [placement], timeline=True)
    made: nx.MultiDiGraph = nx.MultiDiGraph(name=graph.name)
    for op, name in enumerate(graph.op_names):
        made.add_node(
            name, device=problem.cluster.device_names[placement.device[op]], module=found.names[found.module[op]],
            kind=graph.kind[op], phase=graph.phase[op] or "",
        )  # fmt: skip
        if result.timeline is not None:
            made.nodes[name].update(start_ns=int(result.timeline.start_ns[op]), end_ns=int(result.timeline.end_ns[op]))
    edges = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_output.tolist(), graph.edge_data.tolist(), strict=True)
    for src, dst, output, data in edges:
        size = 0 if output == CONTROL else int(graph.output_bytes[data])
        made.add_edge(graph.op_names[src], graph.op_names[dst], key=output, output=output, bytes=size)
    return made


def graphml(problem: Problem, placement: Placement) -> str:
    """`to_networkx` as GraphML."""
    written = io.BytesIO()
    nx.write_graphml(to_networkx(problem, placement), written)
    return written.getvalue().decode()


def networkx(problem: Problem, placement: Placement) -> str:
    """`to_networkx` as JSON that `networkx.node_link_graph` reads."""
    return json.dumps(nx.node_link_data(to_networkx(problem, placement), edges="edges")) + "\n"


def dot(problem: Problem, placement: Placement) -> str:
    """The graph in Graphviz's language: one colour a device, ops with kind and device as a tooltip, control edges dashed."""
    found, palette = to_networkx(problem, placement), colormaps["tab10"]
    colour = {name: to_hex(palette(number % palette.N)) for number, name in enumerate(problem.cluster.device_names)}
    lines = [f"digraph {_quoted(problem.graph.name)} {{", "  node [shape=box, style=filled, fontcolor=white];"]
    for name, fields in found.nodes(data=True):
        tooltip = _quoted(f"{fields['kind']} of {fields['module']} on {fields['device']}")
        lines.append(f'  {_quoted(name)} [fillcolor="{colour[fields["device"]]}", tooltip={tooltip}];')
    for src, dst, fields in found.edges(data=True):
        style = " [style=dashed]" if fields["output"] == CONTROL else f' [label="{fields["bytes"]}"]'
        lines.append(f"  {_quoted(src)} -> {_quoted(dst)}{style};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    """A string of Graphviz: in quotes, where a backslash and a quote are escaped."""
    return json.dumps(text, ensure_ascii=False)
