"""`gnnplace simulate`: the step time and memory of a placement, or the reason why it is infeasible."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnplace.choices import SCHEDULES
from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.formats.placements import Predicted
    from gnnplace.placement import Placement
    from gnnplace.problems import Problem


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments."""
    purpose = "The step time and memory of a placement, beside the bound. An infeasible one is shown with its reason."
    parser = Parser("simulate", purpose)
    options.add_problem_arguments(parser)
    options.add_placement_argument(parser)
    parser.add_argument("--schedule", choices=SCHEDULES, help="another schedule than the placement's")
    explained = "draw what each device runs and sends over time: .png, .svg or .pdf"
    options.add_file_argument(parser, "--picture", metavar="FILE", explained=explained)
    options.add_json_argument(parser)
    options.add_quiet_argument(parser)
    return parser.parse_args(arguments)


def main(chosen: argparse.Namespace) -> int:
    """Simulates the placement; prints a table or one line of JSON (`predicted` of a placement); draws the step."""
    with importing():
        from gnnplace.bounds.bounds import bound_name, lower_bound
        from gnnplace.formats.placements import predicted, read_placement
        from gnnplace.placement import scheduled
        from gnnplace.simulator.simulator import simulate
        from gnnplace.sources import graphs as sources
    if chosen.picture is not None:
        from gnnplace.report import picture

        picture.check_ending(chosen.picture)
    problem = options.problem(chosen, chosen.placement)
    placement = read_placement(chosen.placement, problem.graph, sources.cluster(chosen.cluster))
    if chosen.schedule is not None:
        placement = scheduled(placement, chosen.schedule)
    (result,) = simulate(problem, [placement], timeline=chosen.picture is not None)
    fused = placement.fusion is not None
    bound_ns, bound = lower_bound(problem, fused), bound_name(problem, fused)
    step = predicted(problem.cluster, result, bound_ns, bound, problem.graph.micro_batches)
    if chosen.json:
        terminal.print_json(step.model_dump(exclude_unset=True))
    else:
        _print(problem, placement, step)
    if chosen.picture is not None:
        picture.write_picture(chosen.picture, problem, placement, result)
    return DONE


def _print(problem: Problem, placement: Placement, step: Predicted) -> None:
    from gnnplace.report import step_words

    graph = problem.graph
    title = f"{step_words.named(graph)} on {problem.cluster.name}, schedule {placement.schedule}"
    if placement.fusion is not None:
        title += f", {problem.num_ops:,} ops fused to {len(set(placement.fusion.tolist())):,}"
    rows = [
        ("step time", f"{step_words.for_each(graph, step.step_time_ns)}{step_words.as_given(graph)}"),
        ("feasible", step.infeasible or "yes"),
        ("bound", terminal.bounded(step.bound_ns, step.bound or "", step.room)),
        ("load balance", terminal.percent(step.load_balance)),
        ("busiest channel occupied", terminal.percent(step.communication_share)),
        ("transferred", f"{terminal.mebibytes(step.transferred_bytes)} in {step.transfers}"),
    ]
    for device in problem.cluster.devices:
        peak, idle = (
            None if values is None else values[device.name] for values in (step.peak_memory_bytes, step.idle_ns)
        )
        busy = f"busy {terminal.milliseconds(step.busy_ns[device.name])}, idle {terminal.milliseconds(idle)}"
        rows.append(
            (device.name, f"{busy}, peak {terminal.mebibytes(peak)} of {terminal.mebibytes(device.memory_bytes)}")
        )
    terminal.print_table((title, ""), rows)
