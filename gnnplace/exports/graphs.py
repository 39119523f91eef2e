"""The placed graph for networkx, as GraphML and for Graphviz: every op
with its device, module, phase, start and end.
"""

from __future__ import annotations

import io
import json
import re

import networkx as nx
from matplotlib import colormaps
from matplotlib.colors import to_hex

from gnnplace.complaints import printable
from gnnplace.exports.refusal import UnsayableError
from gnnplace.graph import CONTROL
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules

# Characters of XML 1.0, but for the carriage return, which is read back as a line end
NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_networkx(problem: Problem, placement: Placement) -> nx.MultiDiGraph:
    """A multigraph of op names. Nodes have `device`, `module`, `kind`, `phase`, `start_ns` and `end_ns`; edges `output`
    and `bytes`.

    `phase` is empty where the graph has none; `output` is -1 and `bytes` 0 for a control edge; of a placement that has
    no step, nodes lack start and end.

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
    edges = zip(
        graph.edge_src.tolist(),
        graph.edge_dst.tolist(),
        graph.edge_output.tolist(),
        graph.edge_data.tolist(),
        strict=True,
    )
    for src, dst, output, data in edges:
        size = 0 if output == CONTROL else int(graph.output_bytes[data])
        made.add_edge(graph.op_names[src], graph.op_names[dst], key=output, output=output, bytes=size)
    return made


def graphml(problem: Problem, placement: Placement) -> str:
    """`to_networkx` as GraphML. Raises `UnsayableError` where a name has a character that XML lacks."""
    graph, written = to_networkx(problem, placement), io.BytesIO()
    for name in (
        graph.name,
        *graph,
        *(text for _, fields in graph.nodes(data=True) for text in fields.values() if isinstance(text, str)),
    ):
        if NOT_IN_XML.search(name):
            raise UnsayableError(f"graphml: {name!r}: XML can't hold a character of this name; --to networkx can")
    nx.write_graphml(graph, written)
    return written.getvalue().decode()


def networkx(problem: Problem, placement: Placement) -> str:
    """`to_networkx` as JSON that `networkx.node_link_graph` reads."""
    return json.dumps(nx.node_link_data(to_networkx(problem, placement), edges="edges")) + "\n"


def dot(problem: Problem, placement: Placement) -> str:
    """The graph in Graphviz's language: one colour a device, ops with
    kind and device as a tooltip, control edges dashed.
    """
    found, palette = to_networkx(problem, placement), colormaps["tab10"]
    colour = {name: to_hex(palette(number % palette.N)) for number, name in enumerate(problem.cluster.device_names)}
    lines = [f"digraph {_quoted(problem.graph.name)} {{", "  node [shape=box, style=filled, fontcolor=white];"]
    for name, fields in found.nodes(data=True):
        tooltip, label = _shown(f"{fields['kind']} of {fields['module']} on {fields['device']}"), _shown(name)
        own = "" if label == _quoted(name) else f", label={label}"  # else it is the name of the node
        lines.append(f'  {_quoted(name)} [fillcolor="{colour[fields["device"]]}", tooltip={tooltip}{own}];')
    for src, dst, fields in found.edges(data=True):
        style = " [style=dashed]" if fields["output"] == CONTROL else f' [label="{fields["bytes"]}"]'
        lines.append(f"  {_quoted(src)} -> {_quoted(dst)}{style};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    """A string of Graphviz, another one for each text: in quotes, where
    backslash, quote and what is not printable are escaped.
    """
    return "".join(
        each if each.isprintable() else f"\\u{ord(each):04x}" for each in json.dumps(text, ensure_ascii=False)
    )


def _shown(text: str) -> str:
    """A string that Graphviz shows as `text` on one line; it takes what begins with `&` for an entity."""
    return _quoted(printable(text).replace("&", "&amp;"))
