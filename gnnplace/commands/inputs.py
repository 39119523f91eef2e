"""Arguments that several commands share, and how they are checked."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnplace.placement import SCHEDULES, Schedule
from gnnplace.problem import Problem
from gnnplace.sources import graphs as sources


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


def problem(arguments: argparse.Namespace) -> Problem:
    """The problem that GRAPH and CLUSTER pose under --costs."""
    return sources.costed(
        sources.graph(arguments.graph, arguments.dim, arguments.fetch), sources.cluster(arguments.cluster), arguments.costs, arguments.quiet
    )


def _dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not name or not size.isdecimal() or not int(size):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE with a SIZE of at least 1")
    return name, int(size)
