"""`gnnplace measure`: runs a placed training step on this machine's devices, proves that it computes the same, and times it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gnnplace import planners
from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands import inputs
from gnnplace.commands.candidates import scheduled
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED, Parser
from gnnplace.costs import roofline
from gnnplace.execution.host import Host
from gnnplace.execution.measure import Measurement, measure
from gnnplace.execution.timing import PROTOCOLS, Estimate, estimate, ratio
from gnnplace.execution.workload import Plan, plan
from gnnplace.formats.placements import Predicted, predicted, read_placement
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import SCHEDULES, Placement, Schedule, check
from gnnplace.problem import Problem
from gnnplace.report import terminal
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER

NO_REFERENCE = "nothing"


def main(arguments: Sequence[str]) -> int:
    """Times a placed step on real devices, in turns with a reference placement; its losses and variables must equal the unplaced step's."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        with Host(LOADER, chosen.workload, chosen.seed, limit_s=chosen.limit) as host:
            problem = roofline.problem(host.graph, sources.cluster(chosen.cluster))
            placements = [_legal(problem, placement) for placement in _placements(problem, chosen)]
            host.allow(chosen.limit)
            plans = [_plan(problem, placement) for placement in placements]
            result = _as_run(host, problem, plans[0], placements[0].schedule)
            found = measure(host, plans, PROTOCOLS[chosen.protocol])
    except MeasurementError as failed:
        return _report_failure(chosen, failed)
    if not _first_rank():
        return DONE
    simulated = predicted(problem.cluster, result, lower_bound(problem), bound_name(problem))
    if chosen.json:
        terminal.print_json(_document(problem, chosen, found, result.schedule, simulated))
    else:
        _print(problem, chosen, found, result.schedule, simulated)
    return DONE


def _parser() -> Parser:
    parser = Parser("measure", main.__doc__ or "")
    add_workload_arguments(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--placement", metavar="PLACEMENT", help="a placement: a JSON file")
    way.add_argument("--planner", metavar="NAME", help="plan it now, with a planner that `gnnplace compare` lists")
    parser.add_argument(
        "--against", metavar="PLACEMENT", help="the reference, a JSON file; the first device alone unless given; 'nothing': none"
    )
    parser.add_argument("--schedule", choices=SCHEDULES, help="the schedule, where it is not to be the placement's own")
    parser.add_argument(
        "--protocol", choices=tuple(PROTOCOLS), default="steady", help="steady unless given; paper: ten steps, the last five"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser


def add_workload_arguments(parser: Parser) -> None:
    """WORKLOAD, --cluster, --limit, --seed and -q."""
    explained = "FILE.py:FUNCTION or package.module:FUNCTION that returns a step, or a name of the corpus"
    parser.add_argument("workload", metavar="WORKLOAD", help=explained)
    parser.add_argument("--cluster", metavar="CLUSTER", required=True, help="this machine: a JSON file, or a preset such as cpu-2")
    parser.add_argument(
        "--limit", metavar="SECONDS", type=inputs.seconds, default=600.0, help="to load, and again to measure; 600 unless given"
    )
    parser.add_argument("--seed", type=int, default=0, help="of initial values and inputs; 0 unless given")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def _placements(problem: Problem, chosen: argparse.Namespace) -> list[Placement]:
    """The placement to be measured, then the reference, if any."""
    if chosen.placement:
        placed = read_placement(chosen.placement, problem.graph, problem.cluster)
    else:
        placed = planners.planner_named(chosen.planner, problem, simulate, chosen.seed)(problem)
    placed = scheduled(placed, chosen.schedule or placed.schedule)
    if chosen.against == NO_REFERENCE:
        return [placed]
    if chosen.against:
        return [placed, read_placement(chosen.against, problem.graph, problem.cluster)]
    return [placed, Placement(problem.allowed.argmax(axis=1).astype("int32"))]


def _legal(problem: Problem, placement: Placement) -> Placement:
    if reason := check(problem, placement):
        raise ValueError(f"placement: {reason}")
    return placement


def _plan(problem: Problem, placement: Placement) -> Plan:
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.timeline is not None
    return plan(problem, placement, result.timeline)


def _as_run(host: Host, problem: Problem, plan: Plan, schedule: Schedule) -> StepResult:
    """What the simulator says of a plan as the executor runs it."""
    runs = Problem(host.as_run(plan), problem.cluster, problem.time_ns, problem.contended_ns)
    (result,) = simulate(runs, [Placement(plan.device, "fifo")])
    return replace(result, schedule=schedule)


def _first_rank() -> bool:
    """Whether this process says what was found: of several under `torchrun`, which agree, the first."""
    return os.environ.get("RANK", "0") == "0"


def _report_failure(chosen: argparse.Namespace, failed: MeasurementError) -> int:
    if not _first_rank():
        print(f"gnnplace measure: {failed}", file=sys.stderr)  # it may be this rank's alone
    elif chosen.json:
        terminal.print_json({"workload": chosen.workload, "outcome": failed.outcome, "reason": failed.reason})
    else:
        terminal.print_table((chosen.workload, ""), [("outcome", failed.outcome), ("reason", failed.reason)])
    return MEASUREMENT_FAILED


def _document(
    problem: Problem, chosen: argparse.Namespace, found: Sequence[Measurement], schedule: Schedule, simulated: Predicted
) -> dict[str, Any]:
    names = problem.cluster.device_names
    own = found[0]
    document: dict[str, Any] = {
        "workload": chosen.workload, "cluster": problem.cluster.name, "ops": problem.num_ops, "protocol": chosen.protocol,
        "schedule": schedule, "outcome": "ok", "step_ns": list(own.step_ns), "step_time_ns": estimate(own.step_ns)._asdict(),
        "peak_memory_bytes": dict(zip(names, own.peak_memory_bytes, strict=True)),
        "devices": dict(zip(names, own.devices, strict=True)), "difference": vars(own.difference), "load": own.load._asdict(),
        "simulated": simulated.model_dump(),
    }  # fmt: skip
    if len(found) > 1:
        document["reference"] = {
            "step_ns": list(found[1].step_ns), "step_time_ns": estimate(found[1].step_ns)._asdict(),
            "ratio": ratio(own.step_ns, found[1].step_ns)._asdict(),
        }  # fmt: skip
    return document


def _print(problem: Problem, chosen: argparse.Namespace, found: Sequence[Measurement], schedule: Schedule, simulated: Predicted) -> None:
    own, same = found[0], found[0].difference
    rows = [
        ("step time, measured", f"{_interval(estimate(own.step_ns))}, {len(own.step_ns)} steps"),
        ("step time, simulated", terminal.milliseconds(simulated.step_time_ns)),
        ("bound, simulated", terminal.bounded(simulated.bound_ns, bound_name(problem), simulated.room)),
        ("load balance, simulated", terminal.percent(simulated.load_balance)),
        ("busiest channel occupied, simulated", terminal.percent(simulated.communication_share)),
    ]
    if len(found) > 1:
        faster = ratio(found[1].step_ns, own.step_ns)
        rows.append(("reference, measured", f"{_interval(estimate(found[1].step_ns))}, {len(found[1].step_ns)} steps in turns"))
        rows.append(("faster than the reference", f"{faster.median:.3f}x [{faster.low:.3f}, {faster.high:.3f}]"))
    equal = "equal bit by bit" if same.largest == 0 else f"equal but for {same.largest:.1e} ({same.worst})"
    rows.append(("losses and variables", f"{equal}: {same.variables} variables, {same.steps} steps, against {same.reference}"))
    assert simulated.peak_memory_bytes is not None and simulated.idle_ns is not None  # what was run has its links
    for device, what, peak in zip(problem.cluster.device_names, own.devices, own.peak_memory_bytes, strict=True):
        memory, idle = terminal.mebibytes(simulated.peak_memory_bytes[device]), terminal.milliseconds(simulated.idle_ns[device])
        rows.append((device, f"{what}: peak {terminal.mebibytes(peak)}, simulated {memory}, idle {idle}"))
    rows.append(("machine meanwhile", f"load {own.load.load_average:.2f}, cores {own.load.busy:.0%} busy, {own.load.stolen:.1%} stolen"))
    terminal.print_table((f"{chosen.workload} ({problem.num_ops:,} ops) on {problem.cluster.name}, {schedule}", ""), rows)


def _interval(found: Estimate) -> str:
    return f"{found.median / 1e6:,.3f} ms [{found.low / 1e6:,.3f}, {found.high / 1e6:,.3f}]"
