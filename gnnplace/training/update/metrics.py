"""The metrics of each update: per problem under the problem's label, and over all problems of the update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.training.update.best import Best
from gnnplace.training.update.experience import Experience
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import Scored

Metrics = dict[str, float]


def of_samples(lesson: Lesson, experience: Experience, scored: Scored, best: Best | None) -> Metrics:
    """The metrics of one problem's samples: times, rewards, entropy, infeasible share, and ops on each device.

    Entropy is of a decision, in the mean over all, and over those of each name, such as "device".
    """
    last = experience.episode[-1]
    times = [result.feasible_ns for result in last.results if result.feasible_ns is not None]
    final = experience.reward[-1]
    values: Metrics = {
        "entropy": scored.tape.mean_entropy(),
        **{f"entropy of {name}": scored.tape.mean_entropy((name,)) for name in scored.tape.names},
        "infeasible": 1 - len(times) / len(last.results),
        "reward_mean": float(final.mean()),
        "reward_std": float(final.std(correction=0)),
    }
    if times:
        values |= {
            "best_sample_ns": float(min(times)),
            "mean_ns": float(np.mean(times)),
            "median_ns": float(np.median(times)),
        }
    if best is not None:
        values["best_ns"] = float(best.step_time_ns)
    ops = np.mean(
        [np.bincount(placed.device, minlength=lesson.problem.num_devices) for placed in last.placements], axis=0
    )
    values |= {
        f"ops on {name}": float(count) for name, count in zip(lesson.problem.cluster.device_names, ops, strict=True)
    }
    return labelled(lesson, values)


def labelled(lesson: Lesson, values: Metrics) -> Metrics:
    """Metrics under a problem's label."""
    return {f"{lesson.label}/{name}": value for name, value in values.items()}


def over_problems(lessons: Sequence[Lesson], values: Metrics) -> Metrics:
    """Geometric means over an update's problems: mean and best step time over the best single device's."""
    means: Metrics = {}
    for name in ("mean", "best"):
        ratios = [
            values[key] / lesson.reference_ns for lesson in lessons if (key := f"{lesson.label}/{name}_ns") in values
        ]
        if ratios:
            means[f"{name}_over_one_device"] = geometric_mean(ratios)
    return means


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return float(np.exp(np.mean(np.log(ratios))))
