"""`gnnplace report`: a page about trainings: learning curves over seeds, policies beside heuristics and the bound."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing
from gnnplace.report import terminal
from gnnplace.version import VERSION

if TYPE_CHECKING:
    from gnnplace.report.learning_curves import Rated
    from gnnplace.report.page import Section
    from gnnplace.training.run.curves import PastRun

Methods = Mapping[str, "list[PastRun]"]
PURPOSE = """A page about trainings. Runs that differ in their seed alone are one method, whose curves have intervals \
of 95 %.

With up to four problems the placements of heuristics are computed and shown, too; with more the bound alone.
"""


class ReportPart(NamedTuple):
    """A section and the figures in it."""

    section: Section
    figures: dict[str, Any]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; the page can be written."""
    parser = Parser("report", PURPOSE)
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="the folder of a run of gnnplace train")
    options.add_file_argument(
        parser, "-o", "--output", metavar="FILE.html", explained="the page to write", required=True
    )
    options.add_quiet_argument(parser)
    chosen = parser.parse_args(arguments)
    options.check_report(chosen.output)
    return chosen


def main(chosen: argparse.Namespace) -> int:
    """Writes the page about the runs."""
    with importing():
        from gnnplace.report import learning_curves as learning
        from gnnplace.report.page import Section, write_page
        from gnnplace.training.run import curves
    methods = curves.methods([curves.read_run(path) for path in chosen.runs])
    colour = learning.colours(list(methods))
    labels = sorted({label for runs in methods.values() for run in runs for label in run.best_ns})
    parts = [_validation(methods, colour)]
    if len(labels) <= curves.MOST_PROBLEMS:
        heuristics = _heuristics(methods, labels, chosen.quiet)
        parts += [
            _problem(label, methods, colour, heuristics.get(label, {}), number) for number, label in enumerate(labels)
        ]
    else:
        parts += [_overall(methods, colour), ReportPart(Section("Problems", _problems(labels, methods)), {})]
    sections = [
        *(part.section for part in parts),
        Section("Runs", _runs(methods)),
        Section("Where this comes from", _origin(chosen)),
    ]
    title = f"Training of {', '.join(methods)}" if len(methods) <= 2 else f"Training of {len(methods)} methods"
    write_page(
        chosen.output,
        title,
        sections,
        {"figures": {key: figure for part in parts for key, figure in part.figures.items()}},
    )
    terminal.progress(chosen.quiet)(f"written to {chosen.output}")
    return DONE


def _overall(methods: Methods, colour: Mapping[str, str]) -> ReportPart:
    """The curves of all problems: the geometric mean of step time / time of the best single device, by update."""
    legend = {"best_over_one_device": "best so far", "mean_over_one_device": "mean of samples"}
    levels, unit = {"best single device": 1.0}, "of the best single device's time"
    return _curves("overall", "Over the problems of each update", _lines(methods, legend), colour, levels, unit)


def _validation(methods: Methods, colour: Mapping[str, str]) -> ReportPart:
    legend = {"val/over_best_heuristic": "over the best heuristic", "val/over_bound": "over the bound"}
    title = "Validation: greedy placements of problems outside the training set"
    return _curves("validation", title, _lines(methods, legend), colour, {"equal": 1.0}, "ratio of step times")


def _problem(
    label: str, methods: Methods, colour: Mapping[str, str], heuristics: Mapping[str, int], number: int
) -> ReportPart:
    """The curves of one problem, and its policies beside heuristics and the bound."""
    from gnnplace.report import learning_curves as learning
    from gnnplace.report.page import Section

    lines = _lines(methods, {f"{label}/best_ns": "best so far", f"{label}/mean_ns": "mean of samples"}, scale=1e6)
    bounds = [run.bound_ns[label] / 1e6 for runs in methods.values() for run in runs if label in run.bound_ns]
    rated = [
        learning.Rated(name, learning.estimate([time_ns / 1e6]), learned=False) for name, time_ns in heuristics.items()
    ]
    for name, runs in methods.items():
        if times := [run.best_ns[label] / 1e6 for run in runs if label in run.best_ns]:
            rated.append(learning.Rated(name, learning.estimate(times), learned=True))
    fastest = min(((time_ns / 1e6, name) for name, time_ns in heuristics.items()), default=None)
    levels = {} if fastest is None else {f"best heuristic: {fastest[1]}": fastest[0]}
    levels |= {learning.BOUND: bounds[0]} if bounds else {}
    drawn = _curves(f"curves{number}", label, lines, colour, levels, "ms")
    body = (
        f'{drawn.section.body}<h3>The best placement of each</h3><div id="beside{number}"></div>{_rated(rated, bounds)}'
    )
    return ReportPart(
        Section(label, body),
        drawn.figures | {f"beside{number}": learning.beside(rated, bounds[0] if bounds else None, "ms")},
    )


def _curves(
    key: str,
    title: str,
    lines: Mapping[tuple[str, str], Any],
    colour: Mapping[str, str],
    levels: Mapping[str, float],
    unit: str,
) -> ReportPart:
    """A section with one figure of curves; without lines an empty section, which the page leaves out."""
    from gnnplace.report import learning_curves as learning
    from gnnplace.report.page import Section, note

    if not lines:
        return ReportPart(Section(title, ""), {})
    caption = note("Geometric means over seeds; bands are intervals of 95 % (Student's t of the logarithms).")
    return ReportPart(
        Section(title, f'{caption}<div id="{key}"></div>'), {key: learning.curves(lines, colour, levels, unit)}
    )


def _lines(
    methods: Methods, legend: Mapping[str, str], scale: float = 1.0
) -> dict[tuple[str, str], list[dict[int, float]]]:
    """The histories of the metrics in `legend` (metric -> name), divided by `scale`, by method and name.

    A method has no line for a metric that none of its runs recorded.
    """
    lines = {}
    for name, runs in methods.items():
        for metric, what in legend.items():
            if histories := [run.curves[metric] for run in runs if metric in run.curves]:
                lines[name, what] = [
                    {update: value / scale for update, value in history.items()} for history in histories
                ]
    return lines


def _heuristics(methods: Methods, labels: Sequence[str], quiet: bool) -> dict[str, dict[str, int]]:
    """The simulated step times of heuristics, by problem and planner.

    Problems of runs that measured steps are left out: simulated and measured times can't be compared.
    """
    from gnnplace.commands import candidate_table
    from gnnplace.portfolio import planners
    from gnnplace.portfolio.comparison import candidates
    from gnnplace.simulator.simulator import simulate
    from gnnplace.training.run import problems as run_problems
    from gnnplace.training.run.folder import followed
    from gnnplace.training.update.lesson import labels as labels_of

    times_ns: dict[str, dict[str, int]] = {}
    for run in (run for runs in methods.values() for run in runs if not run.measured):
        if set(run.best_ns) <= set(times_ns):  # another run of the same problems came first
            continue
        with ExitStack() as stack:
            problems = run_problems.opened(run.config, followed(run.path), stack, quiet).problems
        for label, problem in zip(labels_of(problems), problems, strict=True):
            if label in labels and label not in times_ns:
                named = planners.planners(problem, simulate, 0, run.config.policy.proposes)
                heuristics = {name: plan for name, plan in named.items() if name not in planners.SEARCHES}
                proposals = candidates(problem, heuristics, run.config.policy.proposes, candidate_table.news(quiet))
                times_ns[label] = {
                    each.planner: each.step_time_ns for each in proposals if each.step_time_ns is not None
                }
    return times_ns


def _rated(rated: Sequence[Rated], bounds: Sequence[float]) -> str:
    from gnnplace.report.page import table

    rows = []
    for each in sorted(rated, key=lambda each: each.value.mean):
        interval = f"{each.value.low:,.3f} to {each.value.high:,.3f}" if each.value.seeds > 1 else terminal.NONE
        seeds = str(each.value.seeds) if each.learned else terminal.NONE
        rows.append(
            (
                each.name,
                f"{each.value.mean:,.3f}",
                interval,
                seeds,
                f"{each.value.mean / bounds[0]:.3f}" if bounds else terminal.NONE,
            )
        )
    if bounds:
        rows.append(("lower bound", f"{bounds[0]:,.3f}", "", "", "1.000"))
    attributes = [*[""] * len(rated), *(['class="bound"'] if bounds else [])]
    return table(("planner", "step ms", "interval over seeds", "seeds", "over the bound"), rows, attributes)


def _problems(labels: Sequence[str], methods: Methods) -> str:
    """A table with a row for each problem: the mean of each method's best step time over the bound."""
    from gnnplace.report import learning_curves as learning
    from gnnplace.report.page import note, table

    rows = []
    for label in labels:
        ratios = []
        for runs in methods.values():
            over_bound = [
                run.best_ns[label] / run.bound_ns[label]
                for run in runs
                if label in run.best_ns and label in run.bound_ns
            ]
            ratios.append(f"{learning.estimate(over_bound).mean:.3f}" if over_bound else terminal.NONE)
        rows.append((label, *ratios))
    return note("The best placement's step time over the bound, the mean over seeds.") + table(
        ("problem", *methods), rows
    )


def _runs(methods: Methods) -> str:
    from gnnplace.report.page import table

    rows = [
        (
            name,
            str(run.path),
            str(run.config.seed),
            run.config.evaluate,
            f"{run.updates:,}",
            str(len(run.best_ns)),
        )
        for name, runs in methods.items()
        for run in runs
    ]
    return table(("method", "folder", "seed", "steps are", "updates", "problems with a placement"), rows)


def _origin(chosen: argparse.Namespace) -> str:
    from gnnplace.report.page import facts

    tool = f"gnnplace {VERSION}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    return facts([("report by", tool), ("command", options.origin(chosen).command)])
