"""A GraphDef with the device of every op of the step. Calls of functions are inlined, as in the graph that was placed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gnnplace.exports.model import Model, check_same
from gnnplace.frontends.tensorflow.graphdef import read_graphdef
from gnnplace.frontends.tensorflow.graphdef_child import checked, parsed
from gnnplace.problems import Problem


def placed_graphdef(problem: Problem, model: Model, devices: Mapping[str, str]) -> bytes:
    """The binary GraphDef; open dimensions of placeholders have the sizes that were placed. Raises ValueError for another model.

    The file is parsed in this process only after a child process has read it within limits.
    """
    check_same(read_graphdef(model.path, model.dims, model.fetches, problem.graph.name), problem.graph, model)
    graph = checked(parsed(Path(model.path)), model.dims).graph
    for node in graph.node:
        node.device = devices.get(node.name, "")
    content: bytes = graph.SerializeToString(deterministic=True)
    return content
