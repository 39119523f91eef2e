"""Resolves GRAPH and CLUSTER, given as text: names of the corpus, files or code; and the problem of both.

All forms of files stand in one table, `ENDINGS`, by the ending of the file's name (`PUBLISHED` has formats without an
ending of their own). A form is a `Form` record. Its reader is imported only if a text has the form.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnnplace.caveats import caveats
from gnnplace.choices import HERE, Format, Mode, RuntimeName
from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.formats.clusters import read_cluster
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.sources.code import is_code
from gnnplace.transformations.parallelism import Parallelism

if TYPE_CHECKING:
    from gnnplace.exports.trial import Trial

MOST_LINKS = 3


class Reading(NamedTuple):
    """The options for reading a graph.

    `dims` are the sizes of dimensions that a file leaves open, `fetches` the tensors and ops that the step of a
    GraphDef computes. `format` is that of a published file, or `gnnplace` if the file's ending tells. `mode` is the
    part of a PipeDream profile that is read.
    """

    dims: tuple[tuple[str, int], ...] = ()
    fetches: tuple[str, ...] = ()
    format: Format = "gnnplace"
    mode: Mode = "training"


BY_ITS_ENDING = Reading()


class Form(NamedTuple):
    """A form in which a user gives a graph.

    `name` is the form's name in messages. `sized` and `fetched` tell whether its reader takes `dims` and `fetches`.
    """

    name: str
    read: Callable[[str, Reading], ComputationGraph]
    sized: bool = False
    fetched: bool = False


def _onnx(path: str, options: Reading) -> ComputationGraph:
    from gnnplace.frontends.onnx.read import read_onnx

    return read_onnx(path, dict(options.dims))


def _openvino(path: str, options: Reading) -> ComputationGraph:
    from gnnplace.frontends.openvino.read import read_openvino

    return read_openvino(path)


def _graphdef(path: str, options: Reading) -> ComputationGraph:
    from gnnplace.frontends.tensorflow.graphdef import read_graphdef

    return read_graphdef(path, dict(options.dims), options.fetches)


def _json(path: str, options: Reading) -> ComputationGraph:
    from gnnplace.formats.graphs import read_graph

    return read_graph(path)


def _msr_fiddle(path: str, options: Reading) -> ComputationGraph:
    from gnnplace.frontends.published.msr_fiddle import read_msr_fiddle

    return read_msr_fiddle(path, name=Path(path).stem)


def _pipedream(path: str, options: Reading) -> ComputationGraph:
    from gnnplace.frontends.published.pipedream import read_pipedream

    return read_pipedream(path, name=Path(path).stem, mode=options.mode)


def _code(text: str, options: Reading) -> ComputationGraph:
    from gnnplace.sources.code_graph import code_graph

    return code_graph(text)


def _corpus(name: str, options: Reading) -> ComputationGraph:
    _refuse_file(name)
    return manifest.graph(name)


JSON = Form("graph document", _json)
GRAPHDEF = Form("GraphDef", _graphdef, sized=True, fetched=True)
ENDINGS = {
    ".onnx": Form("ONNX file", _onnx, sized=True),
    ".xml": Form("OpenVINO model", _openvino),
    ".pb": GRAPHDEF,
    ".pbtxt": GRAPHDEF,
    ".json": JSON,
}
PUBLISHED: dict[Format, Form] = {
    "msr-fiddle": Form("graph of msr-fiddle", _msr_fiddle),
    "pipedream": Form("graph of pipedream", _pipedream),
}
CODE, CORPUS = Form("code", _code), Form("graph of the corpus", _corpus)  # not files


def graph(text: str, options: Reading = BY_ITS_ENDING) -> ComputationGraph:
    """The graph that `text` refers to.

    Raises ValueError (one line) if there is none or it can't be read with these options, OSError if it is unreadable.
    """
    return _read(text, PUBLISHED.get(options.format) or _form(text), options)


@contextmanager
def opened(text: str, options: Reading = BY_ITS_ENDING) -> Iterator[tuple[ComputationGraph, Trial | None]]:
    """As `graph`; if `text` is code, with trials of exports in its process, which lives until the context closes."""
    if options.format in PUBLISHED or _form(text) is not CODE:
        yield graph(text, options), None
        return
    _refuse_options(text, CODE, options)
    from gnnplace.sources.code_graph import opened as opened_code

    with opened_code(text) as graph_and_trial:
        yield graph_and_trial


def graph_file(path: str, options: Reading = BY_ITS_ENDING) -> ComputationGraph:
    """The graph in a file: JSON, unless its ending or `options.format` names another format."""
    return _read(path, PUBLISHED.get(options.format) or ENDINGS.get(Path(path).suffix, JSON), options)


def graphs(texts: Sequence[str], dims: Sequence[tuple[str, int]]) -> dict[str, ComputationGraph]:
    """The graphs that several texts refer to.

    A size in `dims` holds for all files that take sizes or, as FILE:NAME, for that file alone. Raises ValueError for a
    size without a dimension, and for sizes if no file takes any.
    """
    files = [text for text in texts if _form(text).sized]
    if dims and not files:
        sized = _files(form for form in ENDINGS.values() if form.sized)
        raise ValueError(f"--dim {dims[0][0]}={dims[0][1]}: no graph is an {sized}, so their dimensions have sizes")
    return {text: graph(text, Reading(dims=_dims_of(text, files, dims))) for text in texts}


def cluster(text: str | os.PathLike[str]) -> Cluster:
    """The cluster that `text` refers to.

    `text` is a JSON file (ends in .json or has a '/'), `here` for this machine, the name of a preset, or a description.
    Raises ValueError (one line) for any other text, OSError for an unreadable file.

        >>> cluster("2x rtx-4090, pcie4").device_names
        ('cpu:0', 'gpu:0', 'gpu:1')
    """
    name = os.fspath(text)
    if _is_path(name):
        return read_cluster(name)
    if name == HERE:
        from gnnplace.execution.machine import here

        return here()
    return clusters.cluster(name)


def costed(
    graph: ComputationGraph,
    cluster: Cluster,
    costs: str | None,
    say: Callable[[str], object],
    warn: Callable[[str], object],
    parallelism: Parallelism = Parallelism(),  # noqa: B008, frozen
    runtime: RuntimeName | None = None,
) -> Problem:
    """The problem of a graph on a cluster, with measured costs (a file) or, if `costs` is None, roofline costs.

    With a `runtime`, the step is as that executes it.

    Graph and measured costs are those of one of the step's micro-batches.

    Measured links change the cluster and its checksum; placements refer to the changed cluster. `say` is called with a
    line about links without measurements, `warn` with each caveat of the graph.
    """
    if runtime is not None:
        from gnnplace.runtimes.runtime import executed

        graph = executed(graph, cluster, runtime, parallelism.micro_batches)
    graph = parallelism.of(graph)
    for text in caveats(graph):
        warn(f"{graph.name}: {text}")
    if costs is None:
        return roofline.problem(graph, cluster)
    from gnnplace.costs import links, measured
    from gnnplace.formats.costs import read_costs

    measured_costs = read_costs(costs, graph.plain)
    if unmeasured := links.unmeasured(cluster, [measured_costs]):
        some = ", ".join(f"{link.src} -> {link.dst}" for link in unmeasured[:MOST_LINKS])
        more = f" and {len(unmeasured) - MOST_LINKS} more" if len(unmeasured) > MOST_LINKS else ""
        say(f"{costs}: has no transfers on {some}{more}; these links keep the cluster's values")
    return measured.problem(graph, links.measured(cluster, [measured_costs]), measured_costs)


def _form(text: str) -> Form:
    """The form of a text that names no published format."""
    if is_code(text):
        return CODE
    if (Path(text) / "saved_model.pb").is_file():
        return GRAPHDEF  # whose reader advises on SavedModels
    return ENDINGS.get(Path(text).suffix, JSON if _is_path(text) and not _is_source(text) else CORPUS)


def _read(text: str, form: Form, options: Reading) -> ComputationGraph:
    _refuse_options(text, form, options)
    return form.read(text, options)


def _refuse_options(text: str, form: Form, options: Reading) -> None:
    """Raises ValueError for `dims` or `fetches` with a form that takes none."""
    dims, fetches = options.dims and not form.sized, options.fetches and not form.fetched
    if (dims or fetches) and options.format in PUBLISHED:
        raise ValueError(f"{'--dim' if dims else '--fetch'}: a {form.name} has nothing to choose")
    if dims:
        name, size = options.dims[0]
        sized = _files(form for form in ENDINGS.values() if form.sized)
        raise ValueError(f"--dim {name}={size}: {text} is no {sized}, so its dimensions have sizes")
    if fetches:
        fetched = _files(form for form in ENDINGS.values() if form.fetched)
        raise ValueError(
            f"--fetch {options.fetches[0]}: {text} is no {fetched}, so it says itself what its step computes"
        )


def _files(forms: Iterable[Form]) -> str:
    """Forms of files with their endings, for messages: `ONNX file (*.onnx) or GraphDef (*.pb, *.pbtxt)`."""
    names, endings = {form.name for form in forms}, defaultdict[str, list[str]](list)
    for ending, form in ENDINGS.items():
        if form.name in names:
            endings[form.name].append(f"*{ending}")
    return " or ".join(f"{name} ({', '.join(patterns)})" for name, patterns in endings.items())


def _refuse_file(text: str) -> None:
    """Raises ValueError if a name of the corpus is a file: code without its function, or an unknown format."""
    if _is_source(text):
        raise ValueError(f"{text}: names no function; write {text}:FUNCTION")
    if Path(text).exists() and text not in manifest.names():
        raise ValueError(f"{text}: unknown format; the extension must be one of {', '.join(ENDINGS)}")


def _dims_of(file: str, files: Sequence[str], dims: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The sizes for one file: those for all files, then those for this file, which take precedence."""
    if file not in files:
        return ()
    common = [(name, size) for name, size in dims if not any(name.startswith(f"{other}:") for other in files)]
    return (*common, *((name.removeprefix(f"{file}:"), size) for name, size in dims if name.startswith(f"{file}:")))


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text


def _is_source(text: str) -> bool:
    return text.endswith(".py")
