"""A placed step as an HTML page: its timeline, memory, devices by module and time step, critical chain, planners."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.caveats import caveats
from gnnplace.formats.placements import Alternatives, Provenance
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report import alternatives, step_words, terminal
from gnnplace.report.chain_words import Step, stepped
from gnnplace.report.explanation import (
    FASTER,
    MOVES_HEADER,
    PLACES_HEADER,
    Explanation,
    chain_table,
    changes_rows,
    explain,
    moves_rows,
    places_rows,
)
from gnnplace.report.page import Section, facts, note, shown, table, write_page
from gnnplace.result import StepResult, metrics, micro_batch_ns
from gnnplace.schedules.device_use import in_flight
from gnnplace.version import VERSION

MOST_MOVES = 15


class Rival(NamedTuple):
    """Another planner and the step of its placement."""

    planner: str
    result: StepResult


class Origin(NamedTuple):
    """The command that wrote the report and, if known, the provenance of the placement."""

    command: str
    provenance: Provenance | None = None


def write_step_report(
    path: str | os.PathLike[str],
    problem: Problem,
    placement: Placement,
    origin: Origin,
    rivals: Sequence[Rival] = (),
    beside: Alternatives | None = None,
) -> None:
    """Writes the page of a placed step.

    It has a table of `rivals`, the steps of other planners on the same problem, and one of what people would do
    (`beside`).

    Raises ValueError if the placement has no step, or as `page.check` does; OSError if the file can't be written.
    """
    step, fused = stepped(problem, placement), placement.fusion is not None
    bound_ns, bound = lower_bound(problem, fused), bound_name(problem, fused)
    explanation = explain(problem, placement)
    sections = [
        Section("The step", _summary(problem.graph, step, bound_ns, bound) + _warnings(problem)),
        Section("What runs and what is sent, over time", _timeline(step.problem.graph)),
        Section(f"What each {step_words.one(problem.graph)} holds, over time", _in_flight(step.problem.graph)),
        Section(
            "Devices by module and time",
            note("The device that does more than half of the work, grey if none does; the pointer shows all devices.")
            + _place("layers"),
        ),
        Section(
            "The critical chain: what the end of the step waited for, back to its start",
            _chain(explanation, step.problem.graph),
        ),
        Section("What would help", _help(explanation)),
        Section("Devices", _devices(step)),
        Section("What people would do", _beside(problem, beside)),
        Section("Planners", _planners(step, rivals, bound_ns, bound)),
        Section("Where this comes from", _origin(problem, placement, origin)),
    ]
    title = f"{step_words.named(problem.graph)} on {problem.cluster.name}"
    from gnnplace.report import layer_map, memory_in_flight  # these import matplotlib, for a third of a second
    from gnnplace.report.timeline_data import timeline_data

    figures = {"layers": layer_map.figure(step)}
    if step.problem.graph.copies is not None:
        figures["in_flight"] = memory_in_flight.figure(step)
    write_page(path, title, sections, {"timeline": timeline_data(step), "figures": figures})


def _summary(graph: ComputationGraph, step: Step, bound_ns: int, bound: str) -> str:
    result = step.result
    each = terminal.milliseconds(micro_batch_ns(result.step_time_ns, graph.micro_batches))
    of_each = (each, f"a {step_words.one(graph)}: {graph.name} as given")
    parts = [] if graph.copies is None else [of_each, *step_words.parts(graph)]
    numbers = [
        (terminal.milliseconds(result.step_time_ns), "step time"),
        *parts,
        (terminal.milliseconds(bound_ns), f"bound ({bound}): no placement takes less"),
        (
            terminal.percent(max(0.0, 1 - bound_ns / step.step_time_ns)),
            "of the step a placement could still gain, at most",
        ),
        (f"{step.problem.num_ops:,}", "ops"),
        (terminal.mebibytes(result.transferred_bytes), f"sent in {result.transfers:,} transfers"),
        (step.placement.schedule, "schedule"),
    ]
    figures = "".join(f"<div><b>{shown(value)}</b><span>{shown(name)}</span></div>" for value, name in numbers)
    reason = "" if result.infeasible is None else f'<p class="bad">Infeasible: {shown(result.infeasible)}</p>'
    return f'<div class="big">{figures}</div>{reason}'


def _warnings(problem: Problem) -> str:
    return "".join(f'<p class="bad">Warning: {shown(text)}</p>' for text in caveats(problem.graph))


def _timeline(graph: ComputationGraph) -> str:
    copies, unit = graph.copies is not None, step_words.one(graph)
    by_copy = f'<option value="copy">{step_words.several(graph)}</option>' if copies else ""
    tools = (
        '<div class="tools"><span class="search">'
        '<input type="search" id="search" placeholder="Find an op or a module" autocomplete="off">'
        '<ul id="matches"></ul></span><label>colours: <select id="colouring">'
        f'{by_copy}<option value="phase">phases</option>'
        '<option value="module">modules, first to last</option></select></label>'
        '<button id="whole">whole step</button></div>'
    )
    hint = (
        "Drag to zoom, double-click to zoom out, click on the legend to hide. Below: the memory of each device, "
        "in % of what it has."
    )
    if copies:
        darker = "; backward passes are darker than forward passes" if unit == step_words.MICRO_BATCH else ""
        hint = f"A hue is a {unit}, whose number stands on it{darker}. {hint}"
    return f'{tools}{note(hint)}{_place("timeline")}<div id="tip"></div>'


def _in_flight(graph: ComputationGraph) -> str:
    if graph.copies is None:
        return ""
    unit = step_words.one(graph)
    hint = (
        f"The MiB of each {unit}, above those of state, of what runs once and of sums. A {unit} is in flight on a "
        "device from its first op there to its last."
    )
    return note(hint) + _place("in_flight")


def _place(name: str) -> str:
    return f'<div id="{name}"></div>'


def _chain(explanation: Explanation, graph: ComputationGraph) -> str:
    ends = [f'data-from="{part.start_ns}" data-to="{part.end_ns}"' for part in explanation.chain]
    return (
        note("A click on a row zooms the timeline to it.") + table(*chain_table(explanation, graph), ends)
        + "<h3>By place</h3>" + table(PLACES_HEADER, places_rows(explanation))
    )  # fmt: skip


def _help(explanation: Explanation) -> str:
    moves = table(MOVES_HEADER, moves_rows(explanation.moves[:MOST_MOVES], explanation.step_time_ns))
    none = note("No module by itself would be better elsewhere.")
    return (
        '<div class="columns"><div><h3>Modules that would be better elsewhere, each by itself</h3>'
        f"{moves if explanation.moves else none}</div>"
        f"<div><h3>With the same placement, {FASTER} times as fast</h3>"
        f"{table(('what', 'step ms', 'change'), changes_rows(explanation))}</div></div>"
    )


def _devices(step: Step) -> str:
    problem, result = step.problem, step.result
    ops = np.bincount(step.placement.device, minlength=problem.num_devices).tolist()
    idle_ns = metrics(problem.cluster, result, 0).idle_ns
    copies = problem.graph.copies is not None
    most = in_flight(problem, step.placement.device, step.timeline) if copies else []
    rows = []
    for number, device in enumerate(problem.cluster.devices):
        idle = None if idle_ns is None else int(idle_ns[number]) / step.step_time_ns
        peak = None if result.peak_memory_bytes is None else int(result.peak_memory_bytes[number])
        share = None if peak is None or not device.memory_bytes else peak / device.memory_bytes
        busy = terminal.milliseconds(int(result.busy_ns[number]))
        memory = (terminal.mebibytes(peak), terminal.mebibytes(device.memory_bytes), terminal.percent(share))
        flying = [str(most[number])] if copies else []
        rows.append((device.name, f"{ops[number]:,}", busy, terminal.percent(idle), *memory, *flying))
    header = ("device", "ops", "busy", "idle", "peak memory", "memory", "used")
    return table((*header, "most in flight") if copies else header, rows)


def _planners(step: Step, rivals: Sequence[Rival], bound_ns: int, bound: str) -> str:
    """A table with a row for each planner and one for the bound; nothing without rivals."""
    if not rivals:
        return ""
    cluster, rows = step.problem.cluster, []
    for name, result in rivals:
        measures = metrics(cluster, result, bound_ns)
        peak = None if result.peak_memory_bytes is None else int(result.peak_memory_bytes.max())
        over = terminal.NONE if result.feasible_ns is None else f"{result.feasible_ns / bound_ns:.3f}"
        shares = [terminal.percent(share) for share in (measures.load_balance, measures.communication_share)]
        memory = [terminal.mebibytes(size) for size in (peak, result.transferred_bytes)]
        rows.append((name, terminal.ms(result.step_time_ns), over, *shares, *memory, result.infeasible or "yes"))
    rows.append((f"lower bound ({bound})", terminal.ms(bound_ns), "1.000", *[""] * 5))
    header = ("planner", "step ms", "over the bound", "balance", "busiest channel", "peak memory", "sent", "feasible")
    return table(header, rows, [*[""] * len(rivals), 'class="bound"'])


def _beside(problem: Problem, beside: Alternatives | None) -> str:
    """The advice, and a table of what people would do; nothing for a plan that was not compared with it."""
    if beside is None:
        return ""
    header = [" ".join(name.split("\n")) for name in alternatives.HEADER]
    marks = ['class="bound"' if step.plan else "" for step in alternatives.shown(beside.steps)]
    rows, rest = alternatives.rows(problem.cluster, beside.steps), alternatives.left_out(beside.steps)
    lines = [line for line in (rest, alternatives.without_cpus(problem.cluster, beside)) if line]
    return f"<p>{shown(beside.advice)}</p>" + table(header, rows, marks) + "".join(map(note, lines))


def _origin(problem: Problem, placement: Placement, origin: Origin) -> str:
    pairs: list[tuple[str, Any]] = [
        ("report by", f"gnnplace {VERSION}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"),
        ("command", origin.command),
        ("graph", f"{step_words.named(problem.graph)}, sha256 {problem.graph.original.sha256}"),
        ("cluster", f"{problem.cluster.name}, sha256 {problem.cluster.sha256}"),
    ]
    if (provenance := origin.provenance) is not None:
        pairs += [
            ("placement by", f"{provenance.tool}, {provenance.planner}, seed {provenance.seed}, in "
                             f"{terminal.milliseconds(provenance.wall_ns)}"),
            ("encoder", provenance.encoder),
            ("checkpoint", provenance.checkpoint_sha256 and f"sha256 {provenance.checkpoint_sha256}"),
        ]  # fmt: skip
    if placement.fusion is not None:
        pairs.append(("fused", f"{problem.num_ops:,} ops to {len(np.unique(placement.fusion)):,}"))
    return facts((name, value) for name, value in pairs if value is not None)
