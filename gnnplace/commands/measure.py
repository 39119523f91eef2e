"""`gnnplace measure`: runs a placed training step on this machine's devices, checks its results, and times it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gnnplace.choices import SCHEDULES, ProtocolName, SearchName
from gnnplace.commands import form_options, options, values
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED, Parser, importing
from gnnplace.complaints import UsageError
from gnnplace.isolation.under_way import temporary_folder
from gnnplace.report import terminal
from gnnplace.version import VERSION

if TYPE_CHECKING:
    from gnnplace.execution.evaluator import LastingHost
    from gnnplace.execution.measure import MeasuredStep, Placed
    from gnnplace.execution.timing import Estimate
    from gnnplace.formats.placements import Predicted, Provenance
    from gnnplace.graph import ComputationGraph
    from gnnplace.isolation.outcome import MeasurementError
    from gnnplace.placement import Placement
    from gnnplace.problems import Problem
    from gnnplace.transformations.parallelism import Parallelism

PURPOSE = """Times a placed step on real devices, in turns with a reference; its losses and variables must equal the \
unplaced step's.

With --search the placement is first improved by real steps.
"""
EVALUATIONS = 32
NO_REFERENCE = "nothing"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed and checked arguments."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    for option in ("evaluations", "ledger"):
        if getattr(chosen, option) is not None and not chosen.search:
            parser.error(f"--{option}: without --search nothing is searched")
    return chosen


def _parser() -> Parser:
    parser = Parser("measure", PURPOSE)
    options.add_workload_arguments(parser)
    parser.add_argument(
        "--costs", metavar="FILE", help="measured costs of the step, from `gnnplace profile`, instead of a roofline"
    )
    form_options.add_arguments(parser)
    placed = parser.add_mutually_exclusive_group(required=True)
    placed.add_argument("--placement", metavar="PLACEMENT", help="a placement: a JSON file")
    placed.add_argument("--planner", metavar="NAME", help="plan it now, with a planner that `gnnplace compare` lists")
    _add_search_arguments(parser)
    options.add_file_argument(
        parser, "-o", "--output", metavar="PLACEMENT", explained="the JSON file to write the measured placement to"
    )
    parser.add_argument(
        "--against",
        metavar="PLACEMENT",
        help=f"the reference, a JSON file; the first device alone unless given; {NO_REFERENCE!r}: none",
    )
    parser.add_argument("--schedule", choices=SCHEDULES, help="another schedule than the placement's")
    parser.add_argument(
        "--protocol",
        choices=get_args(ProtocolName),
        default="steady",
        help="steady unless given; paper: ten steps, the last five",
    )
    options.add_json_argument(parser)
    return parser


def _add_search_arguments(parser: Parser) -> None:
    """Adds --search, --evaluations and --ledger."""
    parser.add_argument(
        "--search",
        choices=get_args(SearchName),
        help="improve it by --evaluations real steps; learned: guided by the policy that comes with the package",
    )
    explained = f"placements that --search measures; {EVALUATIONS} unless given"
    parser.add_argument("--evaluations", metavar="N", type=values.positive, help=explained)
    explained = "keeps the steps that --search measures: the same command goes on from there"
    options.add_file_argument(parser, "--ledger", metavar="FILE", explained=explained)


def main(chosen: argparse.Namespace) -> int:
    """Searches, if --search is given, then measures the step."""
    with importing():
        from gnnplace.bounds.bounds import bound_name, lower_bound
        from gnnplace.execution.evaluator import LastingHost
        from gnnplace.execution.host import Host
        from gnnplace.execution.measure import measured_step
        from gnnplace.execution.timing import PROTOCOLS
        from gnnplace.formats.placements import predicted, write_placement
        from gnnplace.isolation.outcome import MeasurementError
        from gnnplace.sources import graphs as sources
        from gnnplace.sources.workload import LOADER
    if chosen.placement:
        form_options.parallelism(chosen, chosen.placement)  # says what differs before the workload is loaded
    started = time.perf_counter_ns()
    hosts = LastingHost(partial(Host, LOADER, chosen.workload, chosen.seed, limit_s=chosen.limit))
    try:
        cluster, say = sources.cluster(chosen.cluster), terminal.progress(chosen.quiet)
        graph = hosts().graph
        posed = partial(sources.costed, cluster=cluster, costs=chosen.costs, say=say, warn=terminal.warn)
        placed = _placed(chosen, graph, posed)
        if chosen.search:
            improved = _improved_by_measuring(chosen, placed.problem, placed.placement, hosts)
            placed = placed._replace(placement=improved)
        reference = _reference(chosen, graph, partial(posed, say=_silent, warn=_silent))
        step = measured_step(hosts(), placed, reference, PROTOCOLS[chosen.protocol], chosen.limit)
    except MeasurementError as failed:
        return _report_failure(chosen, failed)
    finally:
        hosts.close()
    if _first_rank():
        problem = placed.problem
        simulated = predicted(problem.cluster, step.simulated, lower_bound(problem), bound_name(problem))
        if chosen.output:
            provenance = _provenance(chosen, time.perf_counter_ns() - started)
            write_placement(chosen.output, placed.problem.graph, cluster, placed.placement, simulated, provenance)
        (_print_json if chosen.json else _print)(chosen, step, simulated)
    return DONE


def _form(chosen: argparse.Namespace, graph: ComputationGraph, placement: str | None) -> Parallelism:
    """The form of the step: that of a placement's file or, where the command line says none, that of the workload.

    Raises UsageError for another number of micro-batches than the workload says.
    """
    from gnnplace.transformations.parallelism import Parallelism

    if placement is None and not form_options.given(chosen):
        return Parallelism.in_graph(graph)
    chosen.micro_batches = chosen.micro_batches or (None if placement else graph.micro_batches)
    form = form_options.parallelism(chosen, placement)
    if form.micro_batches != graph.micro_batches:
        raise UsageError(
            f"micro_batches: {form.micro_batches} is not {graph.micro_batches}, that of {chosen.workload}, whose "
            "TorchStep(..., micro_batches=...) says it"
        )
    return form


def _placed(chosen: argparse.Namespace, graph: ComputationGraph, posed: Callable[..., Problem]) -> Placed:
    """The placement to measure, from which a search starts, and its problem: a form of the workload's."""
    from gnnplace.execution.measure import Placed
    from gnnplace.formats.placements import read_placement
    from gnnplace.placement import scheduled
    from gnnplace.portfolio import forms, planners
    from gnnplace.simulator.simulator import simulate

    problem = posed(_form(chosen, graph, chosen.placement).of(graph))
    if chosen.placement:
        placement = read_placement(chosen.placement, problem.graph, problem.cluster)
    elif chosen.planner in forms.EVERY:
        rule = forms.by_rule(chosen.planner, problem, simulate)
        problem, placement = rule.form or problem, rule.placement
    else:
        placement = planners.planner_named(chosen.planner, problem, simulate, chosen.seed)(problem)
    return Placed(problem, scheduled(placement, chosen.schedule or placement.schedule))


def _improved_by_measuring(
    chosen: argparse.Namespace, problem: Problem, start: Placement, hosts: LastingHost
) -> Placement:
    """The placement that a search from `start` finds. Every evaluation is a measured step, kept in the ledger."""
    from gnnplace.baselines.searching.budget import Budget
    from gnnplace.execution.evaluator import MeasuredEvaluator
    from gnnplace.execution.ledger import Ledger
    from gnnplace.execution.profile import hardware
    from gnnplace.execution.timing import PAPER
    from gnnplace.portfolio import searches
    from gnnplace.simulator.simulator import simulate

    machine = hardware(any(device.kind == "gpu" for device in problem.cluster.devices))
    with temporary_folder() as folder:
        ledger = Ledger(Path(chosen.ledger or f"{folder}/ledger"))
        hosts_of = {problem.graph.sha256: hosts}
        evaluate = MeasuredEvaluator(hosts_of, simulate, ledger, PAPER, chosen.limit, machine)
        budget = Budget(evaluations=chosen.evaluations or EVALUATIONS)
        return searches.improved_by(chosen.search, problem, evaluate, chosen.seed, budget, start)


def _reference(chosen: argparse.Namespace, graph: ComputationGraph, posed: Callable[..., Problem]) -> Placed | None:
    from gnnplace.execution.measure import Placed, first_device
    from gnnplace.formats.placements import read_about, read_placement

    if chosen.against == NO_REFERENCE:
        return None
    if not chosen.against:
        problem = posed(graph)
        return Placed(problem, first_device(problem))
    form = read_about(chosen.against).parallelism
    problem = posed(form.of(graph) if form.micro_batches == graph.micro_batches else graph)  # else refused in a line
    return Placed(problem, read_placement(chosen.against, problem.graph, problem.cluster))


def _silent(line: str) -> None:
    """Says nothing again."""


def _provenance(chosen: argparse.Namespace, wall_ns: int) -> Provenance:
    from gnnplace.formats.placements import Provenance

    searched = f", {chosen.search} search of measured steps" if chosen.search else ""
    planner = f"{chosen.planner or chosen.placement}{searched}"
    return Provenance(tool=f"gnnplace {VERSION}", planner=planner, seed=chosen.seed, wall_ns=wall_ns)


def _first_rank() -> bool:
    """Whether this process prints the result. Under `torchrun` all ranks find the same, and the first one prints."""
    return os.environ.get("RANK", "0") == "0"


def _report_failure(chosen: argparse.Namespace, failed: MeasurementError) -> int:
    if not _first_rank():
        terminal.warn(f"gnnplace measure: {failed}")  # perhaps no other rank failed so
    elif chosen.json:
        terminal.print_json({"workload": chosen.workload, "outcome": failed.outcome, "reason": failed.reason})
    else:
        terminal.print_table((chosen.workload, ""), [("outcome", failed.outcome), ("reason", failed.reason)])
    return MEASUREMENT_FAILED


def _print_json(chosen: argparse.Namespace, step: MeasuredStep, simulated: Predicted) -> None:
    from gnnplace.execution.timing import estimate, ratio

    problem, measurement = step.problem, step.measured
    names = problem.cluster.device_names
    document: dict[str, Any] = {
        "workload": chosen.workload, "cluster": problem.cluster.name, "ops": problem.num_ops,
        "protocol": chosen.protocol,
        "schedule": step.simulated.schedule, "outcome": "ok", "step_ns": list(measurement.step_ns),
        "step_time_ns": step.step_time_ns._asdict(),
        "peak_memory_bytes": dict(zip(names, measurement.peak_memory_bytes, strict=True)),
        "devices": dict(zip(names, measurement.devices, strict=True)), "difference": vars(measurement.difference),
        "load": measurement.load._asdict(),
        "simulated": simulated.model_dump(exclude_unset=True),
    }  # fmt: skip
    if step.reference is not None:
        step_ns = step.reference.step_ns
        document["reference"] = {
            "step_ns": list(step_ns), "step_time_ns": estimate(step_ns)._asdict(), "ratio": ratio(measurement.step_ns,
            step_ns)._asdict(),
        }  # fmt: skip
    terminal.print_json(document)


def _print(chosen: argparse.Namespace, step: MeasuredStep, simulated: Predicted) -> None:
    from gnnplace.execution.timing import estimate

    problem, measurement = step.problem, step.measured
    same, load = measurement.difference, measurement.load
    rows = [
        ("step time, measured", f"{_interval(step.step_time_ns)}, {len(measurement.step_ns)} steps"),
        ("step time, simulated", terminal.milliseconds(simulated.step_time_ns)),
        ("bound, simulated", terminal.bounded(simulated.bound_ns, simulated.bound or "", simulated.room)),
        ("load balance, simulated", terminal.percent(simulated.load_balance)),
        ("busiest channel occupied, simulated", terminal.percent(simulated.communication_share)),
    ]
    if step.reference is not None and (faster := step.speedup) is not None:
        step_ns = step.reference.step_ns
        rows.append(("reference, measured", f"{_interval(estimate(step_ns))}, {len(step_ns)} steps in turns"))
        rows.append(("faster than the reference", f"{faster.median:.3f}x [{faster.low:.3f}, {faster.high:.3f}]"))
    equal = "equal bit by bit" if same.largest == 0 else f"equal but for {same.largest:.1e} ({same.worst})"
    rows.append(
        ("losses and variables", f"{equal}: {same.variables} variables, {same.steps} steps, against {same.reference}")
    )
    # a placement that ran lacks no link, so it has these
    assert simulated.peak_memory_bytes is not None and simulated.idle_ns is not None
    for device, what, peak in zip(
        problem.cluster.device_names, measurement.devices, measurement.peak_memory_bytes, strict=True
    ):
        memory = terminal.mebibytes(simulated.peak_memory_bytes[device])
        idle = terminal.milliseconds(simulated.idle_ns[device])
        rows.append((device, f"{what}: peak {terminal.mebibytes(peak)}, simulated {memory}, idle {idle}"))
    rows.append(
        (
            "machine meanwhile",
            f"load {load.load_average:.2f}, cores {load.busy:.0%} busy, {load.stolen:.1%} stolen",
        )
    )
    title = f"{chosen.workload} ({problem.num_ops:,} ops) on {problem.cluster.name}, {step.simulated.schedule}"
    terminal.print_table((title, ""), rows)


def _interval(interval: Estimate) -> str:
    return f"{interval.median / 1e6:,.3f} ms [{interval.low / 1e6:,.3f}, {interval.high / 1e6:,.3f}]"
