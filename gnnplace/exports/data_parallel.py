"""Files for data parallelism in PyTorch: a script and the shares of processes, for DDP or for FSDP2.

Replicas that stand on a device each are DDP, with as many micro-batches as their shares. Copies that stand freely, but
those of a micro-batch on one device, are FSDP, and with several replicas hybrid sharding: PyTorch slices each weight
over all devices of a replica, where the plan keeps it whole at one home, and its processes run as many micro-batches
each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.exports.trial import Say
from gnnplace.graph import NONE, Copies
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.homes import process_devices
from gnnplace.runtimes.refusal import UnsayableError, listed

SCRIPT = Path(__file__).with_name("run_data_parallel.py")
BLOCK = re.compile(r"(.*?\.)??\d+(?=\.|$)")  # the first module of a name that is one of a list


def data_parallel(target: str, problem: Problem, placement: Placement, say: Say) -> Mapping[str, str] | None:
    """`plan.json` and `run.py` of replicas or of shards; None for a step of another kind.

    Raises UnsayableError for what is data parallelism, but not PyTorch's: layers with shares or a home of their own,
    FSDP with unequal shares, CPUs beside cards.
    """
    copies = problem.graph.copies
    if copies is None:
        return None
    if copies.placed == "whole" and copies.replicas > 1:
        return _ddp(target, problem, copies, placement)
    if copies.placed in ("free", "fetched") and not copies.family_shares and not copies.one_home:
        return _fsdp(target, problem, copies, placement, say)
    return None


def _ddp(target: str, problem: Problem, copies: Copies, placement: Placement) -> Mapping[str, str]:
    if apart := [*copies.one_home, *(layers for layers, _ in copies.family_shares)]:
        raise UnsayableError(
            f"{target}: DDP copies the whole network, and {listed(apart)} has a home or shares of its own; plan with "
            "--planner ddp"
        )
    first = np.unique(copies.replica, return_index=True)[1]
    stands = placement.device[first]
    order = np.argsort(stands, kind="stable")  # processes have the order of the cards, as launchers number them
    devices = process_devices(target, problem.cluster, stands[order].tolist())
    return _files({"wrap": "ddp", "devices": devices, "shares": np.array(copies.shares)[order].tolist()})


def _fsdp(target: str, problem: Problem, copies: Copies, placement: Placement, say: Say) -> Mapping[str, str] | None:
    works = (copies.micro_batch != NONE) & ~copies.added & problem.graph.kernel
    of_batch = np.full(copies.micro_batches, NONE, dtype=np.int32)
    of_batch[copies.micro_batch[works]] = placement.device[works]
    if not _whole(copies, placement, works, of_batch):
        return None
    replicas = np.split(of_batch, np.cumsum(copies.shares)[:-1])
    devices, shares = zip(*(np.unique(each, return_counts=True) for each in replicas), strict=True)
    every, number = np.concatenate(devices).tolist(), np.concatenate(shares).tolist()
    if len(set(number)) > 1:
        raise UnsayableError(
            f"{target}: FSDP's processes wait for each other in every micro-batch, and theirs are "
            f"{', '.join(map(str, number))}; plan with --planner ddp, or for cards that are alike"
        )
    if len(set(every)) < len(every) or len({len(each) for each in devices}) > 1:
        return None
    names = filter(None, copies.original.layer.values)
    blocks = list(dict.fromkeys(match.group() for name in names if (match := BLOCK.match(name))))
    plan = {
        "wrap": "fsdp", "devices": process_devices(target, problem.cluster, every),
        "mesh": [len(devices), len(devices[0])], "shares": number, "blocks": blocks,
        "reshard_after_forward": copies.placed == "fetched",
    }  # fmt: skip
    say(f"{target}: FSDP slices each weight over all devices, where the plan keeps it whole at one of them")
    return _files(plan)


def _whole(
    copies: Copies, placement: Placement, works: Bool[np.ndarray, " ops"], of_batch: Int32[np.ndarray, " micro_batches"]
) -> bool:
    """Whether each micro-batch stands on one device."""
    return bool((placement.device[works] == of_batch[copies.micro_batch[works]]).all())


def _files(plan: Mapping[str, object]) -> Mapping[str, str]:
    return {"plan.json": json.dumps(plan, indent=1) + "\n", "run.py": SCRIPT.read_text("utf-8")}
