"""What commands take: GRAPH is a file, code or a name of the corpus, CLUSTER a JSON file or a preset; and the problem that they pose."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, assert_never

from gnnplace.cluster import Cluster
from gnnplace.commands import terminal
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import links, profiled, roofline
from gnnplace.execution.code_reference import is_code
from gnnplace.execution.graph_reference import code_graph
from gnnplace.frontends.graphdef import read_graphdef
from gnnplace.frontends.json_cluster import read_cluster
from gnnplace.frontends.json_costs import read_costs
from gnnplace.frontends.json_graph import read_graph
from gnnplace.frontends.onnx import read_onnx
from gnnplace.frontends.openvino import read_openvino
from gnnplace.graph import ComputationGraph
from gnnplace.placement import SCHEDULES, Schedule
from gnnplace.problem import Problem

MOST_LINKS = 3

Form = Literal["onnx", "openvino", "graphdef", "json", "code", "corpus"]
ENDINGS: dict[str, Form] = {".onnx": "onnx", ".xml": "openvino", ".pb": "graphdef", ".pbtxt": "graphdef", ".json": "json"}
SIZED: tuple[Form, ...] = ("onnx", "graphdef")
FILES = "ONNX file (*.onnx) or GraphDef (*.pb, *.pbtxt)"


def add_problem_arguments(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """GRAPH, --dim, --fetch, --cluster, which is required unless there is a `preset` to fall to, and --costs."""
    explained = (
        "a graph: FILE.py:FUNCTION or package.module:FUNCTION that returns a step, a network with its inputs or a graph; an ONNX file "
        "(ends in .onnx), an OpenVINO model (.xml), a TensorFlow GraphDef (.pb, or .pbtxt as text), a JSON file (ends in .json or has a "
        "'/'); or a name of the corpus"
    )
    parser.add_argument("graph", metavar="GRAPH", help=explained)
    add_file_arguments(parser)
    explained = f"a cluster: a JSON file likewise, or a preset{f' ({preset} unless given)' if preset else ' such as k40-2'}"
    parser.add_argument("--cluster", metavar="CLUSTER", required=preset is None, default=preset, help=explained)
    costs = "measured costs of GRAPH, a JSON file: times of ops instead of a roofline, and links instead of CLUSTER's where it has them"
    parser.add_argument("--costs", metavar="FILE", help=costs)


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """--dim and --fetch, for graphs that may be files of other programs."""
    add_dim_argument(parser)
    explained = "what the step of a GraphDef computes: a tensor (loss:0) or an op (train); once for each; all results unless given"
    parser.add_argument("--fetch", metavar="NAME", action="append", default=[], help=explained)


def add_dim_argument(parser: argparse.ArgumentParser, several: str = "") -> None:
    """--dim, for graphs that may be such files; `several` says what it means where there are more than one."""
    explained = "the size of a dimension that an ONNX file only names (--dim batch=8) or an input has not (--dim 'x[0]=8'); once for each"
    parser.add_argument("--dim", metavar="NAME=SIZE", type=_dim, action="append", default=[], help=f"{explained}{several}")


def add_planning_arguments(parser: argparse.ArgumentParser, schedule: Schedule | None = "critical-path", unnamed: str = "") -> None:
    """--schedule, `schedule` where none is named (`unnamed` says more of that), --seed and -q."""
    unless = f"{unnamed or schedule} unless named"
    explained = f"{unless}; given: planners that propose an order are asked for one, the others plan for critical-path"
    parser.add_argument("--schedule", choices=SCHEDULES, default=schedule, help=explained)
    parser.add_argument("--seed", type=int, default=0, help="0 unless given")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def count(text: str) -> int:
    """A count of the command line."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


def positive(text: str) -> int:
    """A count of the command line that is not 0."""
    if not (value := count(text)):
        raise argparse.ArgumentTypeError("0 is too few: at least 1")
    return value


def seconds(text: str) -> float:
    """A time of the command line, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def check_folder(path: str) -> None:
    """Raises ValueError where a file can't be written because its folder does not exist: said before the work."""
    if not Path(path).absolute().parent.is_dir():
        raise ValueError(f"{path}: there is no such folder to write to")


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


def problem(arguments: argparse.Namespace) -> Problem:
    """The problem that GRAPH and CLUSTER pose under --costs."""
    return costed(graph(arguments.graph, arguments.dim, arguments.fetch), cluster(arguments.cluster), arguments.costs, arguments.quiet)


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


def _dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not name or not size.isdecimal() or not int(size):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE with a SIZE of at least 1")
    return name, int(size)


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
