"""What a checkpoint says of its run: configuration, the shape of the policy, and the problems by checksum. And the policy of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.policies import registry
from gnnplace.policies.protocol import PolicyShape
from gnnplace.problems import Problem
from gnnplace.training.checkpoint import Checkpoint


class Described(NamedTuple):
    """A run's configuration, and the policy that it trains with initial weights."""

    config: RunConfig
    shape: PolicyShape
    policy: nn.Module


def described(config: RunConfig, shape: PolicyShape) -> Described:
    """The policy of a configuration and a shape."""
    return Described(config, shape, registry.build(config.policy, shape, config.training.groupings, config.seed))


def of_checkpoint(checkpoint: Checkpoint) -> Described:
    """What a checkpoint trained, with initial weights. Raises ValueError where its description is of another version."""
    config = files.from_document(checkpoint.description["config"], str(checkpoint.path))
    return described(config, shape_of(checkpoint))


def shape_of(checkpoint: Checkpoint) -> PolicyShape:
    """The shape of the policy that a checkpoint trained."""
    shape = checkpoint.description["shape"]
    return PolicyShape(int(shape["devices"]), tuple(shape["kinds"]))


def document(run: Described, problems: Sequence[Problem]) -> dict[str, Any]:
    """The description that goes into a checkpoint."""
    return {
        "config": files.to_document(run.config),
        "shape": {"devices": run.shape.devices, "kinds": list(run.shape.kinds)},
        "problems": [_named(problem) for problem in problems],
    }


def check_problems(description: Mapping[str, Any], problems: Sequence[Problem], place: str) -> None:
    """Raises ValueError where a graph or cluster is no longer what the run was trained on."""
    for then, problem in zip(description["problems"], problems, strict=True):
        now = _named(problem)
        for what in ("graph", "cluster"):
            if then[what] != now[what]:
                raise ValueError(f"{place}: {what} {now[what][0]!r} is not the one that the run began with (sha256 {then[what][1]})")


def _named(problem: Problem) -> dict[str, list[str]]:
    return {"graph": [problem.graph.name, problem.graph.sha256], "cluster": [problem.cluster.name, problem.cluster.sha256]}
