"""A policy's configuration to its networks: with `gnnplace.planners`, the one place where a string becomes a class.

Apart from `gnnplace.planners` because it needs torch, which planners do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, assert_never

import torch
from torch import nn

from gnnplace.config.policies import HierarchicalConfig, PolicyConfig, UnitPlacerConfig
from gnnplace.policies.encoders.groups import MeanGroups
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps, vocabulary
from gnnplace.policies.encoders.unit_graph import UnitGraph
from gnnplace.policies.hierarchical import HierarchicalPlanner
from gnnplace.policies.networks.grouper import Grouper, RandomGrouping
from gnnplace.policies.networks.seq2seq import Seq2Seq
from gnnplace.policies.ungrouped import UngroupedPlanner
from gnnplace.policies.unit_placer import UnitPlacer
from gnnplace.problems import Problem


class PolicyShape(NamedTuple):
    """What a policy takes from the problems of its run: devices (0 = any number) and its vocabulary of op kinds (none = any)."""

    devices: int
    kinds: tuple[str, ...]


def shape(config: PolicyConfig, problems: Sequence[Problem]) -> PolicyShape:
    """The shape of a policy for these problems. Raises ValueError where one policy can't place them all."""
    match config:
        case HierarchicalConfig():
            counts = sorted({problem.num_devices for problem in problems})
            if len(counts) > 1:
                numbers = " and ".join(map(str, counts))
                raise ValueError(f"problems: clusters of {numbers} devices, but a hierarchical policy places on one number of them")
            return PolicyShape(counts[0], vocabulary([problem.graph for problem in problems]) if config.encoder == "paper" else ())
        case UnitPlacerConfig():
            return PolicyShape(0, ())
        case _:
            assert_never(config)


def policy(config: PolicyConfig, shape: PolicyShape, groupings: int, seed: int) -> nn.Module:
    """The policy with initial weights drawn from `seed`; `groupings` of its samples differ, where it groups."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        match config:
            case HierarchicalConfig(grouper="none"):
                encoder = _op_encoder(config, shape)
                network = Grouper(encoder.width, shape.devices, hidden=config.hidden, activation=config.activation)
                return UngroupedPlanner(op_encoder=encoder, network=network, units=config.units, schedule=config.schedule)
            case HierarchicalConfig():
                return _hierarchical(config, shape, groupings, seed)
            case UnitPlacerConfig():
                return UnitPlacer(**_arguments(config))
            case _:
                assert_never(config)


def _arguments(config: UnitPlacerConfig) -> dict[str, Any]:
    return {knob: value for knob, value in vars(config).items() if knob != "kind"}


def _op_encoder(config: HierarchicalConfig, shape: PolicyShape) -> PaperOps | UnitGraph:
    match config.encoder:
        case "paper":
            return PaperOps(shape.kinds)
        case "gnn":
            return UnitGraph(width=config.encoder_width, rounds=config.encoder_rounds)
        case _:
            assert_never(config.encoder)


def _hierarchical(config: HierarchicalConfig, shape: PolicyShape, groupings: int, seed: int) -> HierarchicalPlanner:
    learned = config.grouper == "learned"
    ops = _op_encoder(config, shape) if learned or config.encoder == "gnn" else None
    grouper: Grouper | RandomGrouping = RandomGrouping(config.groups, seed)
    if ops is not None and learned:
        grouper = Grouper(ops.width, config.groups, hidden=config.hidden, activation=config.activation)
    groups = MeanGroups(ops.width, config.groups) if isinstance(ops, UnitGraph) else PaperGroups(shape.kinds, config.groups)
    placer = Seq2Seq(groups.width, shape.devices, width=config.width, bound=config.bound, temperature=config.temperature)
    return HierarchicalPlanner(
        op_encoder=ops, grouper=grouper, group_encoder=groups, placer=placer,
        groupings=groupings if learned else 1, units=config.units, schedule=config.schedule,
    )  # fmt: skip
