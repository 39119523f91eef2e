"""Resolves GRAPH and CLUSTER, given as text: names of the corpus, files or code; and the problem of both.

A format of files is one reader and its endings in `ENDINGS`. A reader is imported when a text is of its form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnnplace.choices import HERE, Format, Mode
from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.formats.clusters import read_cluster
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.sources.code import is_code

if TYPE_CHECKING:
    from gnnplace.exports.trial import Trial

MOST_LINKS = 3

FILES = "ONNX file (*.onnx) or GraphDef (*.pb, *.pbtxt)"


class Reading(NamedTuple):
    """How a graph is read.

    `dims` are the sizes of dimensions that a file leaves open, `fetches` what the step of a GraphDef computes. `format`
    is that of a published file, or `gnnplace` where the file's ending says what it is; `mode` is what is taken of a
    profile of PipeDream.
    """

    dims: tuple[tuple[str, int], ...] = ()
    fetches: tuple[str, ...] = ()
    format: Format = "gnnplace"
    mode: Mode = "training"


BY_ITS_ENDING = Reading()


class Form(NamedTuple):
    """A form of text: its reader, and whether it takes `dims` and `fetches`."""

    read: Callable[[str, Reading], ComputationGraph]
    sized: bool = False
    fetched: bool = False


def _onnx(path: str, how: Reading) -> ComputationGraph:
    from gnnplace.frontends.onnx.read import read_onnx

    return read_onnx(path, dict(how.dims)).graph


def _openvino(path: str, how: Reading) -> ComputationGraph:
    from gnnplace.frontends.openvino.read import read_openvino

    return read_openvino(path).graph


def _graphdef(path: str, how: Reading) -> ComputationGraph:
    from gnnplace.frontends.tensorflow.graphdef import read_graphdef

    return read_graphdef(path, dict(how.dims), how.fetches)


def _json(path: str, how: Reading) -> ComputationGraph:
    from gnnplace.formats.graphs import read_graph

    return read_graph(path)


def _code(text: str, how: Reading) -> ComputationGraph:
    from gnnplace.sources.code_graph import code_graph

    return code_graph(text)


def _corpus(name: str, how: Reading) -> ComputationGraph:
    _refuse_file(name)
    return manifest.graph(name)


JSON, CODE, CORPUS, GRAPHDEF = Form(_json), Form(_code), Form(_corpus), Form(_graphdef, sized=True, fetched=True)
ENDINGS = {
    ".onnx": Form(_onnx, sized=True),
    ".xml": Form(_openvino),
    ".pb": GRAPHDEF,
    ".pbtxt": GRAPHDEF,
    ".json": JSON,
}


def graph(text: str, how: Reading = BY_ITS_ENDING) -> ComputationGraph:
    """The graph that `text` refers to.

    Raises ValueError (one line) if it is none or can't be read so, OSError if it is unreadable.
    """
    return _read(text, _form(text), how) if how.format == "gnnplace" else _published(text, how)


@contextmanager
def opened(text: str, how: Reading = BY_ITS_ENDING) -> Iterator[tuple[ComputationGraph, Trial | None]]:
    """As `graph`; with trials of exports where `text` is code, whose process lives until the context closes."""
    if how.format != "gnnplace" or _form(text) is not CODE:
        yield graph(text, how), None
        return
    _refuse_choices(text, CODE, how)
    from gnnplace.sources.code_graph import opened as opened_code

    with opened_code(text) as found:
        yield found


def graph_file(path: str, how: Reading = BY_ITS_ENDING) -> ComputationGraph:
    """The graph in a file: JSON, unless its extension or `how.format` names another format."""
    return _read(path, ENDINGS.get(Path(path).suffix, JSON), how) if how.format == "gnnplace" else _published(path, how)


def graphs(texts: Sequence[str], dims: Sequence[tuple[str, int]]) -> dict[str, ComputationGraph]:
    """The graphs that several texts refer to. A size in `dims` holds for all files that take sizes or, as FILE:NAME,
    for that file alone.

    Raises ValueError for a size without a dimension, and for sizes if no file takes any.
    """
    files = [text for text in texts if _form(text).sized]
    if dims and not files:
        raise ValueError(f"--dim {dims[0][0]}={dims[0][1]}: no graph is an {FILES}, so their dimensions have sizes")
    return {text: graph(text, Reading(dims=_dims_of(text, files, dims))) for text in texts}


def cluster(text: str | os.PathLike[str]) -> Cluster:
    """The cluster that `text` refers to: a JSON file (ends in .json or has a '/'), this machine (`here`), a preset, or
    a description.

    Raises ValueError (one line) if it is none, OSError for an unreadable file.

        >>> cluster("2x rtx-4090, pcie4").device_names
        ('cpu:0', 'gpu:0', 'gpu:1')
    """
    named = os.fspath(text)
    if _is_path(named):
        return read_cluster(named)
    if named == HERE:
        from gnnplace.execution.machine import here

        return here()
    return clusters.cluster(named)


def costed(graph: ComputationGraph, cluster: Cluster, costs: str | None, say: Callable[[str], object]) -> Problem:
    """The problem of a graph on a cluster, with measured costs (a file) or, if `costs` is None, roofline costs.

    Measured links change the cluster and its checksum; placements refer to the changed cluster. `say` is told which
    links were not measured.
    """
    if costs is None:
        return roofline.problem(graph, cluster)
    from gnnplace.costs import links, measured
    from gnnplace.formats.costs import read_costs

    found = read_costs(costs, graph)
    if unmeasured := links.unmeasured(cluster, [found]):
        named = ", ".join(f"{link.src} -> {link.dst}" for link in unmeasured[:MOST_LINKS])
        more = f" and {len(unmeasured) - MOST_LINKS} more" if len(unmeasured) > MOST_LINKS else ""
        say(f"{costs}: has no transfers on {named}{more}; these links keep the cluster's values")
    return measured.problem(graph, links.measured(cluster, [found]), found)


def _form(text: str) -> Form:
    if is_code(text):
        return CODE
    if (Path(text) / "saved_model.pb").is_file():
        return GRAPHDEF  # whose reader says what to do with a SavedModel
    return ENDINGS.get(Path(text).suffix, JSON if _is_path(text) and not _is_source(text) else CORPUS)


def _read(text: str, form: Form, how: Reading) -> ComputationGraph:
    _refuse_choices(text, form, how)
    return form.read(text, how)


def _refuse_choices(text: str, form: Form, how: Reading) -> None:
    """Raises ValueError for `dims` or `fetches` with a format that takes none."""
    if how.dims and not form.sized:
        raise ValueError(f"--dim {how.dims[0][0]}={how.dims[0][1]}: {text} is no {FILES}, so its dimensions have sizes")
    if how.fetches and not form.fetched:
        raise ValueError(
            f"--fetch {how.fetches[0]}: {text} is no GraphDef (*.pb, *.pbtxt), so it says itself what its step computes"
        )


def _published(path: str, how: Reading) -> ComputationGraph:
    """The graph of a published file, which names none."""
    if how.dims or how.fetches:
        raise ValueError(f"{'--dim' if how.dims else '--fetch'}: a graph of {how.format} has nothing to choose")
    name = Path(path).stem
    if how.format == "msr-fiddle":
        from gnnplace.frontends.published.msr_fiddle import read_msr_fiddle

        return read_msr_fiddle(path, name=name)
    from gnnplace.frontends.published.pipedream import read_pipedream

    return read_pipedream(path, name=name, mode=how.mode)


def _refuse_file(text: str) -> None:
    """Raises ValueError if a name of the corpus is a file: code without its function, or an unknown format."""
    if _is_source(text):
        raise ValueError(f"{text}: names no function; write {text}:FUNCTION")
    if Path(text).exists() and text not in manifest.names():
        raise ValueError(f"{text}: unknown format; the extension must be one of {', '.join(ENDINGS)}")


def _dims_of(file: str, files: Sequence[str], dims: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The sizes for one file: those for all files, then its own, which override them."""
    if file not in files:
        return ()
    common = [(name, size) for name, size in dims if not any(name.startswith(f"{other}:") for other in files)]
    return (*common, *((name.removeprefix(f"{file}:"), size) for name, size in dims if name.startswith(f"{file}:")))


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text


def _is_source(text: str) -> bool:
    return text.endswith(".py")
