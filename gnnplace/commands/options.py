"""Arguments that several commands share: their options, checks of several options, and the objects they stand for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, get_args

from gnnplace.choices import BEST, GRANULARITIES, RULES, Format, Mode, RuntimeName, Schedule
from gnnplace.commands import form_options, values
from gnnplace.commands.usage import Parser, Several, importing
from gnnplace.complaints import UsageError
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.constraints import Constraint
    from gnnplace.formats.placements import Provenance
    from gnnplace.fused import Fused
    from gnnplace.problems import Problem
    from gnnplace.report.step_report import Origin
    from gnnplace.sources.graphs import Reading

LARGE_STEP = 100_000  # ops, from which on making them is announced
CLUSTER = (
    "a cluster: a JSON file likewise, a preset such as k40-2, a machine such as '2x rtx-4090, pcie4', or here: this one"
)


def add_problem_arguments(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """Adds GRAPH with the arguments of its reading, --cluster (required unless there is a `preset`), and --costs."""
    explained = (
        "a graph: FILE.py:FUNCTION or package.module:FUNCTION that returns a step, a network with its inputs or a "
        "graph; an ONNX file (ends in .onnx), an OpenVINO model (.xml), a TensorFlow GraphDef (.pb, or .pbtxt as "
        "text), a JSON file (ends in .json or has a '/'); or a name of the corpus"
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
    explained = (
        "the program that will execute the step: what it keeps together, the devices that it can use and its order "
        "hold for every placement; none unless given, or as the placement says"
    )
    parser.add_argument("--for", dest="runtime", choices=get_args(RuntimeName), help=explained)
    form_options.add_arguments(parser)


def add_reading_arguments(parser: argparse.ArgumentParser, mode: Mode | None = "training") -> None:
    """Adds --dim, --fetch, --format and --mode, for files of other programs; --mode is required without a default."""
    add_dim_argument(parser)
    explained = (
        "what the step of a GraphDef computes: a tensor (loss:0) or an op (train); repeatable; all results unless given"
    )
    parser.add_argument("--fetch", metavar="NAME", action="append", default=[], help=explained)
    explained = (
        "gnnplace (unless given): as the file's ending says; msr-fiddle: JSON of dnn-partitioning; pipedream: "
        "the text of a profile"
    )
    parser.add_argument("--format", choices=get_args(Format), default="gnnplace", help=explained)
    explained = (
        "the part of a PipeDream profile that is read"
        f"{f'; {mode} unless given' if mode else ', and the mode of the graph in the corpus'}"
    )
    parser.add_argument("--mode", choices=get_args(Mode), required=mode is None, default=mode, help=explained)


def add_dim_argument(parser: argparse.ArgumentParser, several: str = "") -> None:
    """Adds --dim, the sizes of open dimensions; `several` explains its form for several graphs."""
    explained = f"size of a symbolic (batch=8) or unknown ('x[0]=8') input dimension; repeatable{several}"
    parser.add_argument("--dim", metavar="NAME=SIZE", type=values.dim, action="append", default=[], help=explained)


def add_planning_arguments(
    parser: argparse.ArgumentParser, schedule: Schedule | None = "critical-path", unnamed: str = ""
) -> None:
    """Adds --schedule, --seed and -q. `schedule` is the default, which `unnamed` describes in words."""
    unless = f"{unnamed or schedule} unless named"
    explained = f"{unless}; given: planners that propose an order are asked for one, the others plan for critical-path"
    parser.add_argument("--schedule", choices=(*RULES, "given"), default=schedule, help=explained)
    parser.add_argument("--seed", type=values.seed, default=0, help="0 unless given")
    add_quiet_argument(parser)


def add_budget_arguments(parser: Parser) -> None:
    """Adds --budget and --evaluations, of which one may be given."""
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--budget",
        metavar="SECONDS",
        type=values.duration,
        help=f"of {BEST}; e.g. 10s. The result depends on the machine",
    )
    budget.add_argument(
        "--evaluations", metavar="N", type=values.positive, help=f"of {BEST}; the same result everywhere"
    )


def add_fusion_argument(parser: argparse.ArgumentParser, explained: str) -> None:
    """Adds --fusion."""
    parser.add_argument("--fusion", choices=("default",), help=explained)


def add_constraint_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a `Constraint`."""
    explained = (
        "what is placed as a whole: each op (unless given), each module that has variables, or a run of modules "
        "(stages of a pipeline)"
    )
    parser.add_argument("--granularity", choices=GRANULARITIES, default="op", help=explained)
    explained = (
        "modules, or parents of modules, that stay on one device each, such as h.0.attn; h.*: each h.0, h.1, ...; "
        "a+b: both on one device"
    )
    parser.add_argument("--keep-whole", metavar="NAME", nargs="+", action=Several, default=[], help=explained)
    parser.add_argument(
        "--devices", metavar="A,B", type=values.names, default=(), help="the devices that may be used, e.g. gpu:0,gpu:1"
    )
    parser.add_argument("--accelerators-only", action="store_true", help="no CPU is used")
    parser.add_argument(
        "--max-cuts", metavar="N", type=values.count, help="with --granularity stage: at most so many boundaries"
    )


def add_report_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --report."""
    explained = (
        "write a page about the step, one HTML file: timeline, memory, devices by module, critical chain (needs plotly)"
    )
    add_file_argument(parser, "--report", metavar="FILE.html", explained=explained)


def add_workload_arguments(parser: Parser) -> None:
    """Adds WORKLOAD, --cluster, --limit, --seed and -q."""
    explained = "FILE.py:FUNCTION or package.module:FUNCTION that returns a step, or a name of the corpus"
    parser.add_argument("workload", metavar="WORKLOAD", help=explained)
    parser.add_argument(
        "--cluster", metavar="CLUSTER", required=True, help="this machine: a JSON file, or a preset such as cpu-2"
    )
    add_run_arguments(parser, "to load, and again to measure")


def add_run_arguments(parser: Parser, limited: str) -> None:
    """Adds --limit, the seconds that what `limited` names may take, --seed and -q."""
    explained = f"{limited}; 600 unless given"
    parser.add_argument("--limit", metavar="SECONDS", type=values.seconds, default=600.0, help=explained)
    parser.add_argument("--seed", type=values.seed, default=0, help="of initial values and inputs; 0 unless given")
    add_quiet_argument(parser)


def add_placement_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --placement."""
    parser.add_argument("--placement", metavar="PLACEMENT", required=True, help="a placement: a JSON file")


def add_samples_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --samples, which `check_samples` checks."""
    explained = "with --checkpoint: the fastest of its greedy placement and N samples"
    parser.add_argument("--samples", metavar="N", type=values.count, help=explained)


def add_file_argument(
    parser: argparse.ArgumentParser, *names: str, metavar: str, explained: str, required: bool = False
) -> None:
    """Adds an option that names a file to write."""
    parser.add_argument(*names, metavar=metavar, type=values.output, required=required, help=explained)


def add_json_argument(parser: argparse.ArgumentParser, explained: str = "one line of JSON") -> None:
    """Adds --json."""
    parser.add_argument("--json", action="store_true", help=explained)


def add_quiet_argument(parser: argparse.ArgumentParser) -> None:
    """Adds -q."""
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def check_report(path: str | None) -> None:
    """Raises ValueError where no report can be written to `path`. Commands check it before they plan."""
    if path is not None:
        from gnnplace.report import page

        page.check(path)


def check_samples(chosen: argparse.Namespace, parser: Parser) -> None:
    """Refuses --samples without a --checkpoint, whose policy draws them; the default is 0."""
    if chosen.samples is not None and not chosen.checkpoint:
        parser.error("--samples: are drawn by a trained policy; name its --checkpoint")
    chosen.samples = chosen.samples or 0


def check_fusion(chosen: argparse.Namespace, parser: Parser) -> None:
    """Refuses --fusion together with --granularity stage."""
    if chosen.fusion is not None and chosen.granularity == "stage":
        parser.error("--fusion: stages are made of ops that run by themselves")


def reading(chosen: argparse.Namespace) -> Reading:
    """The options with which GRAPH is read."""
    from gnnplace.sources.graphs import Reading

    return Reading(tuple(chosen.dim), tuple(chosen.fetch), chosen.format, chosen.mode)


def problem(chosen: argparse.Namespace, placement: str | None = None) -> Problem:
    """The problem of a step of GRAPH on CLUSTER under --costs; the file of a placement says which step.

    CLUSTER and the placement are read first: a graph may take minutes to capture.
    """
    with importing():
        from gnnplace.sources import graphs as sources
    cluster, step = sources.cluster(chosen.cluster), form_options.parallelism(chosen, placement)
    chosen.runtime = runtime(chosen.runtime, placement)
    graph, say = sources.graph(chosen.graph, reading(chosen)), terminal.progress(chosen.quiet)
    if step.micro_batches > 1 and (ops := graph.num_ops * step.micro_batches) >= LARGE_STEP:
        say(f"a step of {step.micro_batches} copies of {graph.name}, some {ops:,} ops: seconds to make, more to bound")
    return sources.costed(graph, cluster, chosen.costs, say, terminal.warn, step, chosen.runtime)


def runtime(stated: RuntimeName | None, placement: str | None) -> RuntimeName | None:
    """The runtime that --for states or that a placement was made for. Raises UsageError if they differ."""
    if placement is None:
        return stated
    from gnnplace.formats.placements import read_about

    placed = read_about(placement).runtime
    if stated is not None and placed not in (None, stated):
        raise UsageError(f"--for: {stated} is not {placed}, which {placement} was made for; leave it to the file")
    return stated or placed


def rules(chosen: argparse.Namespace) -> str:
    """The runtime and the constraint of placements in words; empty if all placements are allowed."""
    return "; ".join(filter(None, [f"for {chosen.runtime}" if chosen.runtime else "", str(constraint(chosen))]))


def constraint(chosen: argparse.Namespace) -> Constraint:
    """The constraint that placements have to satisfy."""
    from gnnplace.constraints import Constraint

    return Constraint(
        chosen.granularity, tuple(chosen.keep_whole), chosen.devices, chosen.accelerators_only, chosen.max_cuts
    )


def fusion(chosen: argparse.Namespace, problem: Problem) -> Fused | None:
    """The problem with its ops fused as --fusion asks; None without --fusion."""
    from gnnplace.fused import fused
    from gnnplace.fusion.defaults import default

    return None if chosen.fusion is None else fused(problem, default(problem))


def origin(chosen: argparse.Namespace, provenance: Provenance | None = None) -> Origin:
    """The origin that a page of --report states: the command line, and who made the placement."""
    from gnnplace.report.step_report import Origin

    return Origin(chosen.command_line, provenance)
