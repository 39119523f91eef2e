"""Beside the policies of `transfer`: as many placements of the same problems that nothing has learned, under the costs of the day."""

from __future__ import annotations

import numpy as np

from experiments import controls
from experiments.cells import Cell, Job
from experiments.encoders.transfer import HELD_OUT, RANDOM_SEEDS, others
from experiments.encoders.transfer_table import overall
from experiments.problems import problem_of, time_ns
from gnnplace.corpus import manifest
from gnnplace.training.run.selection import selected
from gnnplace.training.update.lesson import labels


def controlled(graph: str, cluster: str, evaluations: int) -> Cell:
    """The step times of every control by seed, beside the best heuristic, the best single device and the bound."""
    problem = problem_of(graph, cluster)
    steps = {
        name: [time_ns(problem, control(problem, evaluations, np.random.default_rng(seed))) for seed in range(RANDOM_SEEDS)]
        for name, control in controls.CONTROLS.items()
    }
    return others(graph, cluster, evaluations) | {"controls": steps}


def jobs(evaluations: int) -> dict[str, Job]:
    """A cell for each problem that is held out."""
    held_out = selected(HELD_OUT, 0)
    return {
        label: (controlled, (problem.graph.name, problem.cluster.name, evaluations))
        for problem, label in zip(held_out, labels(held_out), strict=True)
    }


def table(cells: dict[str, Cell]) -> str:
    """Every control against the best heuristic, the best single device and the bound."""
    rows = {name: {label: cell["controls"][name] for label, cell in cells.items()} for name in controls.CONTROLS}
    rows["random over coarse units"] = {label: cell["random_ns"] for label, cell in cells.items()}
    rows["one device"] = {label: [cell["one_device_ns"]] for label, cell in cells.items()}
    return overall(rows, cells, {label: manifest.entry(label.rpartition(".")[0]).family for label in cells})
