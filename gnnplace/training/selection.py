"""Problems of the corpus as a configuration chooses them, and exams: such problems with the best heuristic's step time and the bound."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from gnnplace import planners
from gnnplace.bounds.bounds import lower_bound
from gnnplace.config.selection import SelectionConfig
from gnnplace.corpus import manifest
from gnnplace.corpus.drawn import drawn
from gnnplace.costs import roofline
from gnnplace.formats import atomic
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.training.lesson import Exam, labels


def selected(config: SelectionConfig, seed: int) -> tuple[Problem, ...]:
    """The problems that a configuration chooses, graph by graph; the clusters drawn for a graph depend on its name and the seed."""
    clusters = [sources.cluster(name) for name in config.clusters] if config.splits else []
    problems = []
    for entry in manifest.entries():
        if _is_chosen(entry, config):
            graph, first = manifest.graph(entry.name), zlib.crc32(f"{seed}/{entry.name}".encode())
            machines = [*clusters, *(drawn(first + number) for number in range(config.drawn_clusters))]
            problems += [roofline.problem(graph, machine) for machine in machines]
    if config.splits and not problems:
        raise ValueError("corpus: no graph is in these splits and lineages and small enough")
    return tuple(problems)


def _is_chosen(entry: manifest.Entry, config: SelectionConfig) -> bool:
    of_lineage = entry.lineage not in config.without and (not config.lineages or entry.lineage in config.lineages)
    return entry.split in config.splits and of_lineage and (not config.most_ops or entry.ops <= config.most_ops)


def exams(problems: Sequence[Problem], kept: Path | None, say: Callable[[str], object]) -> tuple[Exam, ...]:
    """The problems as exams. What their heuristics take is looked up in the file `kept`, if there is one, and written there."""
    known = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    made = []
    for problem, label in zip(problems, labels(problems), strict=True):
        key = f"{problem.graph.sha256}/{problem.cluster.sha256}"
        if key not in known:
            say(f"{label}: looking for the best heuristic's placement")
            (step,) = simulate(problem, [planners.best_heuristic(problem, simulate)])
            known[key] = step.step_time_ns
        made.append(Exam(problem, label, known[key], lower_bound(problem)))
    if kept is not None:
        atomic.write_text(kept, json.dumps(known, indent=1) + "\n")
    return tuple(made)
