"""GRAPH and CLUSTER as text, to a graph, a cluster and the problem that they pose: names of the corpus, files, code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, assert_never

from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import links, profiled, roofline
from gnnplace.formats.clusters import read_cluster
from gnnplace.formats.costs import read_costs
from gnnplace.formats.graphs import read_graph
from gnnplace.frontends.onnx.read import read_onnx
from gnnplace.frontends.openvino.read import read_openvino
from gnnplace.frontends.tensorflow.graphdef import read_graphdef
from gnnplace.graph import ComputationGraph
from gnnplace.problem import Problem
from gnnplace.report import terminal
from gnnplace.sources.code import is_code
from gnnplace.sources.code_graph import code_graph

MOST_LINKS = 3

Form = Literal["onnx", "openvino", "graphdef", "json", "code", "corpus"]
ENDINGS: dict[str, Form] = {".onnx": "onnx", ".xml": "openvino", ".pb": "graphdef", ".pbtxt": "graphdef", ".json": "json"}
SIZED: tuple[Form, ...] = ("onnx", "graphdef")
FILES = "ONNX file (*.onnx) or GraphDef (*.pb, *.pbtxt)"


def graph(text: str, dims: Sequence[tuple[str, int]] = (), fetches: Sequence[str] = ()) -> ComputationGraph:
    """The graph that GRAPH means; `dims` are what --dim says, `fetches` what --fetch does."""
    return _read(text, _form(text), dims, fetches)


def graphs(texts: Sequence[str], dims: Sequence[tuple[str, int]]) -> dict[str, ComputationGraph]:
    """The graphs that several GRAPHs mean; a size in `dims` is for each file that takes some, or, named FILE:NAME, for that one alone.

    Raises ValueError for a size that a file has no dimension for, and where there are sizes but no such files.
    """
    files = [text for text in texts if _form(text) in SIZED]
    if dims and not files:
        raise ValueError(f"--dim {dims[0][0]}={dims[0][1]}: no graph is an {FILES}, so their dimensions have sizes")
    return {text: graph(text, _dims_of(text, files, dims)) for text in texts}


def graph_file(path: str, dims: Sequence[tuple[str, int]] = (), fetches: Sequence[str] = ()) -> ComputationGraph:
    """The graph in a file, which is JSON unless its ending says otherwise."""
    return _read(path, ENDINGS.get(Path(path).suffix, "json"), dims, fetches)


def _form(text: str) -> Form:
    if is_code(text):
        return "code"
    if (Path(text) / "saved_model.pb").is_file():
        return "graphdef"  # whose reader says what to do with a SavedModel
    return ENDINGS.get(Path(text).suffix, "json" if _is_path(text) and not _is_source(text) else "corpus")


def _read(text: str, form: Form, dims: Sequence[tuple[str, int]], fetches: Sequence[str]) -> ComputationGraph:
    """Raises ValueError for `dims` and `fetches` of a form that takes none."""
    if dims and form not in SIZED:
        raise ValueError(f"--dim {dims[0][0]}={dims[0][1]}: {text} is no {FILES}, so its dimensions have sizes")
    if fetches and form != "graphdef":
        raise ValueError(f"--fetch {fetches[0]}: {text} is no GraphDef (*.pb, *.pbtxt), so it says itself what its step computes")
    match form:
        case "onnx":
            return read_onnx(text, dict(dims)).graph
        case "openvino":
            return read_openvino(text).graph
        case "graphdef":
            return read_graphdef(text, dict(dims), fetches)
        case "json":
            return read_graph(text)
        case "code":
            return code_graph(text)
        case "corpus":
            _refuse_file(text)
            return manifest.graph(text)
        case _:
            assert_never(form)


def _refuse_file(text: str) -> None:
    """Raises ValueError where a name that should be the corpus' is a file's: of code without its function, or of a form we don't know."""
    if _is_source(text):
        raise ValueError(f"{text}: which function of it? GRAPH is {text}:FUNCTION")
    if Path(text).exists() and text not in manifest.names():
        raise ValueError(f"{text}: its ending is none of {', '.join(ENDINGS)}, so it is not known what it holds")


def cluster(text: str) -> Cluster:
    """The cluster that CLUSTER means."""
    return read_cluster(text) if _is_path(text) else clusters.cluster(text)


def costed(graph: ComputationGraph, cluster: Cluster, costs: str | None, quiet: bool) -> Problem:
    """The problem of a graph on a cluster under the costs that were measured (a file), or roofline costs without one.

    Measured links make its cluster another than CLUSTER (another checksum), which is what placements refer to.
    """
    if costs is None:
        return roofline.problem(graph, cluster)
    found = read_costs(costs, graph)
    if unmeasured := links.unmeasured(cluster, [found]):
        named = ", ".join(f"{link.src} -> {link.dst}" for link in unmeasured[:MOST_LINKS])
        more = f" and {len(unmeasured) - MOST_LINKS} more" if len(unmeasured) > MOST_LINKS else ""
        terminal.progress(quiet)(f"{costs}: without transfers on {named}{more}, which stay as the cluster has them")
    return profiled.problem(graph, links.measured(cluster, [found]), found)


def _dims_of(file: str, files: Sequence[str], dims: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The sizes that are for one of the files: those for all, then its own, which come before them."""
    if file not in files:
        return []
    common = [(name, size) for name, size in dims if not any(name.startswith(f"{other}:") for other in files)]
    return common + [(name.removeprefix(f"{file}:"), size) for name, size in dims if name.startswith(f"{file}:")]


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text


def _is_source(text: str) -> bool:
    return text.endswith(".py")
