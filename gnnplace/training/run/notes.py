"""Notes of a run in MLflow besides its knobs and curves: a description, its source, the bound, the baselines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnnplace.bounds.bounds import lower_bound
from gnnplace.config.run import RunConfig
from gnnplace.config.training import Phase
from gnnplace.portfolio.candidates import Candidate
from gnnplace.training.run.checkpoint import FILE as CHECKPOINT
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.metrics import Metrics, labelled

OWN = "policy, "  # how rows of the policy begin
SHOWN = 4  # problems that a description names


def tags(config: RunConfig, folder: Path, lessons: Sequence[Lesson], phases: Sequence[Phase]) -> dict[str, str]:
    """Description and source under MLflow's own names for them."""
    return {
        "mlflow.note.content": description(config, folder, lessons, phases),
        "mlflow.source.name": source(sys.argv),
        "mlflow.source.type": "LOCAL",
    }


def description(config: RunConfig, folder: Path, lessons: Sequence[Lesson], phases: Sequence[Phase]) -> str:
    """The policy, its problems, the length of the run, and how to continue (Markdown)."""
    policy = (
        f"{config.policy.kind} ({config.policy.encodes_with})" if config.policy.encodes_with else config.policy.kind
    )
    names = [lesson.label for lesson in lessons]
    where = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    updates = ", ".join(f"{phase.last - phase.first} updates of {phase.name}" for phase in phases)
    named = config.problems or [(lessons[0].problem.graph.name, lessons[0].problem.cluster.name)]
    (graph, cluster), checkpoint = map(shlex.quote, named[0]), shlex.quote(str(folder / CHECKPOINT))
    return (
        f"**{policy}** learns from {where} ({config.evaluate}), seed {config.seed}: {updates or 'no updates'}.\n\n"
        f"Its placement: `gnnplace place {graph} --cluster {cluster} --checkpoint {checkpoint}`; "
        f"its curves as a page: `gnnplace report {shlex.quote(str(folder))} -o trainings.html`"
    )


def source(arguments: Sequence[str]) -> str:
    """The command of a process."""
    program = Path(arguments[0])
    return shlex.join([program.parent.name if program.name == "__main__.py" else program.name, *arguments[1:]])


def baselines(lesson: Lesson, candidates: Sequence[Candidate]) -> Metrics:
    """The bound, the best single device, each baseline and the fastest of them, simulated, as metrics of a problem."""
    times = {
        candidate.planner: float(candidate.step_time_ns)
        for candidate in candidates
        if candidate.step_time_ns is not None and not candidate.planner.startswith(OWN)
    }
    metrics: Metrics = {"bound_ns": float(lower_bound(lesson.problem)), "one_device_ns": float(lesson.reference_ns)}
    metrics |= {"best_baseline_ns": min(times.values())} if times else {}
    return labelled(lesson, metrics | _named(times))


def _named(times: Mapping[str, float]) -> Metrics:
    """The step times as metrics, under names of letters, digits and the signs that MLflow takes."""
    return {
        f"baseline {''.join(c if c.isalnum() or c in '_-. ' else '_' for c in name)}_ns": time
        for name, time in times.items()
    }
