"""Arguments that several commands share: how they are parsed, how their values are checked, and what they stand for."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from gnnplace.choices import BEST, GRANULARITIES, SCHEDULES, Format, Mode, Schedule
from gnnplace.commands.usage import Parser, Several, importing
from gnnplace.knobs import MOST_SEED
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.constraints import Constraint
    from gnnplace.formats.placements import Provenance
    from gnnplace.fused import Fused
    from gnnplace.problems import Problem
    from gnnplace.report.step_report import Origin
    from gnnplace.sources.graphs import Reading

MOST_DIGITS = 30  # of a number
CLUSTER = (
    "a cluster: a JSON file likewise, a preset such as k40-2, a machine such as '2x rtx-4090, pcie4', or here: this one"
)


def add_problem_arguments(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """GRAPH and how it is read, --cluster, which is required unless there is a `preset` to fall to, and --costs."""
    explained = (
        "a graph: FILE.py:FUNCTION or package.module:FUNCTION that returns a step, a network with its inputs or a "
        "graph; an ONNX file "
        "(ends in .onnx), an OpenVINO model (.xml), a TensorFlow GraphDef (.pb, or .pbtxt as text), a JSON file "
        "(ends in .json or has a "
        "'/'); or a name of the corpus"
    )
    parser.add_argument("graph", metavar="GRAPH", help=explained)
    add_reading_arguments(parser)
    explained = f"{CLUSTER}{f'; {preset} unless given' if preset else ''}"
    parser.add_argument("--cluster", metavar="CLUSTER", required=preset is None, default=preset, help=explained)
    costs = (
        "measured costs of GRAPH, a JSON file: times of ops instead of a roofline, and links instead of "
        "CLUSTER's where it has them"
    )
    parser.add_argument("--costs", metavar="FILE", help=costs)


def add_reading_arguments(parser: argparse.ArgumentParser, mode: Mode | None = "training") -> None:
    """--dim, --fetch, --format and --mode (required where there is no
    `mode` to fall to), for graphs in files of other programs.
    """
    add_dim_argument(parser)
    explained = (
        "what the step of a GraphDef computes: a tensor (loss:0) or an op (train); repeatable; all results unless given"
    )
    parser.add_argument("--fetch", metavar="NAME", action="append", default=[], help=explained)
    explained = (
        "gnnplace (unless given): what its ending says; msr-fiddle: JSON of dnn-partitioning; pipedream: "
        "the text of a profile"
    )
    parser.add_argument("--format", choices=get_args(Format), default="gnnplace", help=explained)
    explained = (
        "what is taken of a profile of "
        f"PipeDream{f'; {mode} unless given' if mode else ', and what the corpus says of the graph'}"
    )
    parser.add_argument("--mode", choices=get_args(Mode), required=mode is None, default=mode, help=explained)


def add_dim_argument(parser: argparse.ArgumentParser, several: str = "") -> None:
    """--dim, for graphs that may be such files; `several` says what it means where there are more than one."""
    explained = f"size of a symbolic (batch=8) or unknown ('x[0]=8') input dimension; repeatable{several}"
    parser.add_argument("--dim", metavar="NAME=SIZE", type=_dim, action="append", default=[], help=explained)


def add_planning_arguments(
    parser: argparse.ArgumentParser, schedule: Schedule | None = "critical-path", unnamed: str = ""
) -> None:
    """--schedule, `schedule` where none is named (`unnamed` says more of that), --seed and -q."""
    unless = f"{unnamed or schedule} unless named"
    explained = f"{unless}; given: planners that propose an order are asked for one, the others plan for critical-path"
    parser.add_argument("--schedule", choices=SCHEDULES, default=schedule, help=explained)
    parser.add_argument("--seed", type=seed, default=0, help="0 unless given")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def add_budget_arguments(parser: Parser) -> None:
    """--budget or --evaluations."""
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--budget", metavar="SECONDS", type=_duration, help=f"of {BEST}; e.g. 10s. The result depends on the machine"
    )
    budget.add_argument("--evaluations", metavar="N", type=positive, help=f"of {BEST}; the same result everywhere")


def add_fusion_argument(parser: argparse.ArgumentParser, explained: str) -> None:
    """--fusion."""
    parser.add_argument("--fusion", choices=("default",), help=explained)


def add_constraint_arguments(parser: argparse.ArgumentParser) -> None:
    """--granularity, --keep-whole, --devices, --accelerators-only and --max-cuts."""
    explained = (
        "what has one device: each op (unless given), each module with variables of its own, or a run of "
        "modules (stages of a pipeline)"
    )
    parser.add_argument("--granularity", choices=GRANULARITIES, default="op", help=explained)
    explained = (
        "modules, or what modules are in, that stay whole, such as h.0.attn; h.*: each h.0, h.1, ...; a+b: "
        "both on one device"
    )
    parser.add_argument("--keep-whole", metavar="NAME", nargs="+", action=Several, default=[], help=explained)
    parser.add_argument(
        "--devices", metavar="A,B", type=_names, default=(), help="the devices that may be used, e.g. gpu:0,gpu:1"
    )
    parser.add_argument("--accelerators-only", action="store_true", help="no CPU is used")
    parser.add_argument(
        "--max-cuts", metavar="N", type=count, help="with --granularity stage: at most so many boundaries"
    )


def add_report_argument(parser: argparse.ArgumentParser) -> None:
    """--report."""
    explained = (
        "write a page about the step, one HTML file: timeline, memory, devices by module, critical chain (needs plotly)"
    )
    parser.add_argument("--report", metavar="FILE.html", type=output, help=explained)


def add_workload_arguments(parser: Parser) -> None:
    """WORKLOAD, --cluster, --limit, --seed and -q."""
    explained = "FILE.py:FUNCTION or package.module:FUNCTION that returns a step, or a name of the corpus"
    parser.add_argument("workload", metavar="WORKLOAD", help=explained)
    parser.add_argument(
        "--cluster", metavar="CLUSTER", required=True, help="this machine: a JSON file, or a preset such as cpu-2"
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=seconds,
        default=600.0,
        help="to load, and again to measure; 600 unless given",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of initial values and inputs; 0 unless given")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def check_report(path: str | None) -> None:
    """Raises ValueError where there can be no report at `path`: said before the work."""
    if path is not None:
        from gnnplace.report import page

        page.check(path)


def check_samples(chosen: argparse.Namespace, parser: Parser) -> None:
    """Refuses --samples where there is no policy to draw them; none are drawn unless it is given."""
    if chosen.samples is not None and not chosen.checkpoint:
        parser.error("--samples: are drawn by a trained policy; name its --checkpoint")
    chosen.samples = chosen.samples or 0


def reading(chosen: argparse.Namespace) -> Reading:
    """How GRAPH is read."""
    from gnnplace.sources.graphs import Reading

    return Reading(tuple(chosen.dim), tuple(chosen.fetch), chosen.format, chosen.mode)


def problem(chosen: argparse.Namespace) -> Problem:
    """The problem of GRAPH and CLUSTER under --costs. CLUSTER is read first: a graph may take minutes to capture."""
    with importing():
        from gnnplace.sources import graphs as sources
    cluster, graph = sources.cluster(chosen.cluster), sources.graph(chosen.graph, reading(chosen))
    return sources.costed(graph, cluster, chosen.costs, terminal.progress(chosen.quiet))


def constraint(chosen: argparse.Namespace) -> Constraint:
    """What a placement has to keep to."""
    from gnnplace.constraints import Constraint

    return Constraint(
        chosen.granularity, tuple(chosen.keep_whole), chosen.devices, chosen.accelerators_only, chosen.max_cuts
    )


def fusion(chosen: argparse.Namespace, problem: Problem) -> Fused | None:
    """The problem fused as --fusion says, None without it."""
    from gnnplace.fused import fused
    from gnnplace.fusion.defaults import default

    return None if chosen.fusion is None else fused(problem, default(problem))


def origin(chosen: argparse.Namespace, provenance: Provenance | None = None) -> Origin:
    """What the page of --report says of its own making."""
    from gnnplace.report.step_report import Origin

    return Origin(chosen.command_line, provenance)


def count(text: str) -> int:
    """A count of the command line."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
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


def seed(text: str) -> int:
    """A seed of the command line."""
    if (value := count(text)) > MOST_SEED:
        raise argparse.ArgumentTypeError(f"{text} is above {MOST_SEED}")
    return value


def output(text: str) -> str:
    """A file of the command line that is to be written: refused before the work where it can't be."""
    if Path(new_path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: is a folder; name a file to write")
    return text


def new_path(text: str) -> str:
    """A file or a folder of the command line that is to be written."""
    if not text:
        raise argparse.ArgumentTypeError("'' names nothing to write to")
    try:
        os.stat(text)
    except FileNotFoundError:
        if not Path(text).absolute().parent.is_dir():
            raise argparse.ArgumentTypeError(f"{text}: there is no such folder to write to") from None
    except OSError as error:  # too long, a file as a folder, a link to itself
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of names with commas between")
    return names


def _duration(text: str) -> float:
    return seconds(text.removesuffix("s"))


def _dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not name or not size.isdecimal() or len(size) > MOST_DIGITS or not int(size):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SIZE with a SIZE of at least 1")
    return name, int(size)
