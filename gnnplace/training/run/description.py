"""The description of a run in its checkpoint, and the policy that it describes.

It holds the configuration, the shape of the policy, and the problems by checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.policies import registry
from gnnplace.policies.protocol import PolicyConfig, PolicyShape
from gnnplace.problems import Problem
from gnnplace.training.run import checkpoint_documents
from gnnplace.training.run.checkpoint import PolicyWeights, check_weights
from gnnplace.training.run.checkpoint_documents import DescriptionDocument


class Described(NamedTuple):
    """The knobs of a policy, the shape of its weights, and the policy with initial weights."""

    config: PolicyConfig
    shape: PolicyShape
    policy: nn.Module


def described(config: RunConfig, shape: PolicyShape, groupings: int | None = None) -> Described:
    """The policy of a run, which draws `groupings` groupings, or as many as the run says."""
    number = config.training.groupings if groupings is None else groupings
    return Described(config.policy, shape, registry.build(config.policy, shape, number, config.seed))


def of_checkpoint(trained: PolicyWeights) -> Described:
    """The policy of a checkpoint, with initial weights.

    Raises ValueError if its description is of another version.
    """
    document = document_of(trained)
    config, shape = files.policy_from_document(document.config.policy, str(trained.path)), shape_of(trained)
    with torch.device("meta"):  # takes no memory, whatever sizes the description claims
        check_weights(trained, registry.build(config, shape, document.config.training.groupings, 0))
    return Described(config, shape, registry.build(config, shape, document.config.training.groupings, 0))


def shape_of(trained: PolicyWeights) -> PolicyShape:
    """The shape of a checkpoint's policy. Raises ValueError if its description is none."""
    shape = document_of(trained).shape
    return PolicyShape(shape.devices, tuple(shape.kinds), shape.groups)


def document_of(trained: PolicyWeights) -> DescriptionDocument:
    """The description of a checkpoint's run. Raises ValueError (one line) if it is none."""
    try:
        return checkpoint_documents.described(dict(trained.description))
    except ValueError as error:
        raise ValueError(f"{trained.path}: description: {error}") from error


def document(config: RunConfig, shape: PolicyShape, problems: Sequence[Problem]) -> dict[str, Any]:
    """The description that goes into a checkpoint."""
    return {
        "config": files.to_document(config),
        "shape": {**shape._asdict(), "kinds": list(shape.kinds)},
        "problems": [_named(problem) for problem in problems],
        "range": {
            "ops": _range([problem.num_ops for problem in problems]),
            "devices": _range([problem.num_devices for problem in problems]),
        },
    }


def _range(sizes: Sequence[int]) -> list[int]:
    return [min(sizes), max(sizes)]


def check_problems(trained: PolicyWeights, problems: Sequence[Problem]) -> None:
    """Raises ValueError if a graph or cluster differs from the one that the run was trained on."""
    began = document_of(trained).problems
    if len(began) != len(problems):
        raise ValueError(f"{trained.path}: is of {len(began)} problems, not of {len(problems)}")
    for then, problem in zip(began, problems, strict=True):
        for what, now in _named(problem).items():
            if (before := getattr(then, what)) != now:
                raise ValueError(
                    f"{trained.path}: {what} {now[0]!r} is not the one that the run began with (sha256 {before[1]})"
                )


def _named(problem: Problem) -> dict[str, list[str]]:
    return {
        "graph": [problem.graph.name, problem.graph.sha256],
        "cluster": [problem.cluster.name, problem.cluster.sha256],
    }
