"""The placed graph for networkx, as GraphML and for Graphviz: each op with its device, module, phase, start and end."""

from __future__ import annotations

import io
import json
import re

import networkx as nx
from matplotlib import colormaps
from matplotlib.colors import to_hex

from gnnplace.complaints import printable
from gnnplace.graph import CONTROL
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import UnsayableError
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import modules

# All but the characters of XML 1.0; the carriage return is excluded, because it is read back as a line end
NOT_IN_XML = re.compile(r"[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_networkx(problem: Problem, placement: Placement) -> nx.MultiDiGraph:
    """A multigraph of op names. Nodes have `device`, `module`, `kind`, `phase`, `start_ns` and `end_ns`; edges have
    `output` and `bytes`.

    `phase` is empty if the graph has no phases. A control edge has `output` -1 and `bytes` 0. If the placement has no
    step, nodes lack `start_ns` and `end_ns`.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> placed = to_networkx(problem, gp.place(problem, "gpu"))
        >>> len(placed) == problem.num_ops, {device for _, device in placed.nodes(data="device")}
        (True, {'gpu:0'})
    """
    graph, module_of = problem.graph, modules(problem.graph)
    (result,) = simulate(problem, [placement], timeline=True)
    placed: nx.MultiDiGraph = nx.MultiDiGraph(name=graph.name)
    for op, name in enumerate(graph.op_names):
        placed.add_node(
            name, device=problem.cluster.device_names[placement.device[op]],
            module=module_of.names[module_of.module[op]], kind=graph.kind[op], phase=graph.phase[op] or "",
        )  # fmt: skip
        if result.timeline is not None:
            times = {"start_ns": int(result.timeline.start_ns[op]), "end_ns": int(result.timeline.end_ns[op])}
            placed.nodes[name].update(times)
    edges = zip(
        graph.edge_src.tolist(),
        graph.edge_dst.tolist(),
        graph.edge_output.tolist(),
        graph.edge_data.tolist(),
        strict=True,
    )
    for src, dst, output, data in edges:
        size = 0 if output == CONTROL else int(graph.output_bytes[data])
        placed.add_edge(graph.op_names[src], graph.op_names[dst], key=output, output=output, bytes=size)
    return placed


def graphml(problem: Problem, placement: Placement) -> str:
    """`to_networkx` as GraphML. Raises `UnsayableError` if a name has a character that XML lacks."""
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
    """The graph in Graphviz's language: a colour for each device, tooltips with kind, module and device, dashed control
    edges.
    """
    placed, palette = to_networkx(problem, placement), colormaps["tab10"]
    colour = {name: to_hex(palette(number % palette.N)) for number, name in enumerate(problem.cluster.device_names)}
    lines = [f"digraph {_quoted(problem.graph.name)} {{", "  node [shape=box, style=filled, fontcolor=white];"]
    for name, fields in placed.nodes(data=True):
        tooltip, label = _shown(f"{fields['kind']} of {fields['module']} on {fields['device']}"), _shown(name)
        shown = "" if label == _quoted(name) else f", label={label}"  # by default Graphviz shows the node's name
        lines.append(f'  {_quoted(name)} [fillcolor="{colour[fields["device"]]}", tooltip={tooltip}{shown}];')
    for src, dst, fields in placed.edges(data=True):
        style = " [style=dashed]" if fields["output"] == CONTROL else f' [label="{fields["bytes"]}"]'
        lines.append(f"  {_quoted(src)} -> {_quoted(dst)}{style};")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    """A quoted string of Graphviz, different for each text: backslash, quote and unprintable characters are escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\u{ord(character):04x}" for character in quoted)


def _shown(text: str) -> str:
    """A string that Graphviz shows as `text` on one line. An unescaped `&` would begin an entity."""
    return _quoted(printable(text).replace("&", "&amp;"))
