"""What commands take: GRAPH is a JSON or ONNX file or a name of the corpus, CLUSTER a JSON file or a preset; and their problem."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gnnplace.cluster import Cluster
from gnnplace.commands import terminal
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import links, profiled, roofline
from gnnplace.frontends.json_cluster import read_cluster
from gnnplace.frontends.json_costs import read_costs
from gnnplace.frontends.json_graph import read_graph
from gnnplace.frontends.onnx import read_onnx
from gnnplace.graph import ComputationGraph
from gnnplace.placement import SCHEDULES, Schedule
from gnnplace.problem import Problem

MOST_LINKS = 3
ONNX = ".onnx"


def add_problem_arguments(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """GRAPH, --dim, --cluster, which is required unless there is a `preset` to fall to, and --costs."""
    explained = "a graph: an ONNX file (ends in .onnx), a JSON file (ends in .json or has a '/'), or a name of the corpus"
    parser.add_argument("graph", metavar="GRAPH", help=explained)
    add_dim_argument(parser)
    explained = f"a cluster: a JSON file likewise, or a preset{f' ({preset} unless given)' if preset else ' such as k40-2'}"
    parser.add_argument("--cluster", metavar="CLUSTER", required=preset is None, default=preset, help=explained)
    costs = "measured costs of GRAPH, a JSON file: times of ops instead of a roofline, and links instead of CLUSTER's where it has them"
    parser.add_argument("--costs", metavar="FILE", help=costs)


def add_dim_argument(parser: argparse.ArgumentParser) -> None:
    """--dim, for graphs that may be ONNX files."""
    explained = "the size of a dimension that an ONNX file only names (--dim batch=8); once for each"
    parser.add_argument("--dim", metavar="NAME=SIZE", type=_dim, action="append", default=[], help=explained)


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


def graph(text: str, dims: Sequence[tuple[str, int]] = ()) -> ComputationGraph:
    """The graph that GRAPH means; `dims` are what --dim says."""
    if dims or text.endswith(ONNX) or _is_path(text):
        return graph_file(text, dims)
    return manifest.graph(text)


def graph_file(path: str, dims: Sequence[tuple[str, int]] = ()) -> ComputationGraph:
    """The graph in an ONNX or JSON file. Raises ValueError where `dims` are given for another than an ONNX file."""
    if path.endswith(ONNX):
        return read_onnx(path, dict(dims)).graph
    if dims:
        raise ValueError(f"--dim {dims[0][0]}={dims[0][1]}: {path} is no ONNX file (*{ONNX}), so its dimensions have sizes")
    return read_graph(path)


def cluster(text: str) -> Cluster:
    """The cluster that CLUSTER means."""
    return read_cluster(text) if _is_path(text) else clusters.cluster(text)


def problem(arguments: argparse.Namespace) -> Problem:
    """The problem that GRAPH and CLUSTER pose under --costs."""
    return costed(graph(arguments.graph, arguments.dim), cluster(arguments.cluster), arguments.costs, arguments.quiet)


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


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text
