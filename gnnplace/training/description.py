"""What a checkpoint says of its run: configuration, the shape of the policy, and the problems by checksum. And the policy of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.policies import registry
from gnnplace.policies.protocol import PolicyConfig, PolicyShape
from gnnplace.problems import Problem
from gnnplace.training.checkpoint import PolicyWeights


class Described(NamedTuple):
    """The knobs of a policy, the shape of its weights, and the policy with initial ones."""

    config: PolicyConfig
    shape: PolicyShape
    policy: nn.Module


def described(config: RunConfig, shape: PolicyShape, groupings: int | None = None) -> Described:
    """The policy of a run; it draws as many groupings as the run says, unless told how many."""
    number = config.training.groupings if groupings is None else groupings
    return Described(config.policy, shape, registry.build(config.policy, shape, number, config.seed))


def of_checkpoint(trained: PolicyWeights) -> Described:
    """The policy that a checkpoint trained, with initial weights. Raises ValueError where its description is of another version."""
    config = files.policy_from_document(trained.description["config"]["policy"], str(trained.path))
    shape = shape_of(trained)
    groupings = int(trained.description["config"]["training"]["groupings"])
    return Described(config, shape, registry.build(config, shape, groupings, 0))


def shape_of(trained: PolicyWeights) -> PolicyShape:
    """The shape of the policy that a checkpoint trained."""
    shape = trained.description["shape"]
    return PolicyShape(int(shape["devices"]), tuple(shape["kinds"]), int(shape.get("groups", 0)))


def document(config: RunConfig, shape: PolicyShape, problems: Sequence[Problem]) -> dict[str, Any]:
    """The description that goes into a checkpoint."""
    return {
        "config": files.to_document(config),
        "shape": {**shape._asdict(), "kinds": list(shape.kinds)},
        "problems": [_named(problem) for problem in problems],
        "range": {"ops": _range([each.num_ops for each in problems]), "devices": _range([each.num_devices for each in problems])},
    }


def _range(sizes: Sequence[int]) -> list[int]:
    return [min(sizes), max(sizes)]


def check_problems(description: Mapping[str, Any], problems: Sequence[Problem], place: str) -> None:
    """Raises ValueError where a graph or cluster is no longer what the run was trained on."""
    if len(description["problems"]) != len(problems):
        raise ValueError(f"{place}: is of {len(description['problems'])} problems, not of {len(problems)}")
    for then, problem in zip(description["problems"], problems, strict=True):
        now = _named(problem)
        for what in ("graph", "cluster"):
            if then[what] != now[what]:
                raise ValueError(f"{place}: {what} {now[what][0]!r} is not the one that the run began with (sha256 {then[what][1]})")


def _named(problem: Problem) -> dict[str, list[str]]:
    return {"graph": [problem.graph.name, problem.graph.sha256], "cluster": [problem.cluster.name, problem.cluster.sha256]}
