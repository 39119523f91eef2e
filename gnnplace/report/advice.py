"""One line of advice for a step of several micro-batches: the rule that is all one needs and how to run it, or what the
plan does better than the best rule, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gnnplace.cluster import Cluster
from gnnplace.formats.placements import AlternativeStep
from gnnplace.report.alternatives import PIPELINES, Busy, amount, lacks, refused, uses, word

ENOUGH = 0.02  # of the time for a micro-batch: what a plan saves below this is not worth leaving a rule for
SAID = 0.0005  # of the time for a micro-batch: less is not worth a number
FULL = 0.97  # of a step: a device that computes so long is the one that others wait for
MOST_NAMES = 3  # devices in a sentence
# classes of torch.distributed.pipelining, and the stages on each rank
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", 1),
    "1f1b": ("Schedule1F1B", 1),
    "interleaved-1f1b": ("ScheduleInterleaved1F1B", 2),
    "zb-h1": ("ScheduleInterleavedZeroBubble", 1),
    "zb-v": ("ScheduleZBVZeroBubble", 2),
}
NO_CLASS = "torch.distributed.pipelining has no schedule class for it"
WITHOUT_CLASS = {"graphpipe": NO_CLASS, "v-half": NO_CLASS, "pipedream": "PyTorch has no class for it"}


def advice(cluster: Cluster, steps: Sequence[AlternativeStep]) -> str:
    """The advice for a plan among rules, of which the least time for a micro-batch comes first."""
    plan = next(step for step in steps if step.plan)
    fits = [step for step in steps if step.infeasible is None and step.planner in HOW]
    if plan.infeasible is not None:
        return f"Nothing fits: {_short(cluster, steps)}."
    if not fits:
        return f"No rule fits, this plan does: {_short(cluster, steps)}."
    if (saved := 1 - _each(plan) / _each(fits[0])) >= ENOUGH:
        return f"This plan takes {100 * saved:.1f} % less than {word(fits[0])}: {why(cluster, plan, fits[0])}."
    near = [step for step in fits if 1 - _each(plan) / _each(step) < ENOUGH]
    rule = min(near, key=lambda step: [*HOW].index(step.planner))
    saved = 1 - _each(plan) / _each(rule)
    less = f" (this plan takes {100 * saved:.1f} % less)" if saved >= SAID else ""
    return f"{_capital(word(rule))} is all you need here{less}: {HOW[rule.planner](cluster, rule)}."


def why(cluster: Cluster, plan: AlternativeStep, rule: AlternativeStep) -> str:
    """Why a rule takes longer than the plan, from what both leave idle and send."""
    used, most = uses(cluster, rule), max(use.busy for use in uses(cluster, rule))
    idle, mean = _idle(used), sum(use.busy for use in used) / len(used)
    if rule.planner in (*PIPELINES, "pipedream", "dp-pp"):
        return f"{word(rule)} leaves {idle}, since stages are unequal, or wait for the first and the last micro-batch"
    if rule.planner == "one-card":
        return f"one card leaves {idle}"
    if most >= FULL and mean < FULL - ENOUGH:
        homes = "" if rule.planner in ("ddp", "fsdp") else "layers at one home and "
        return f"{word(rule)} leaves {idle}, since {homes}whole micro-batches can't be shared evenly"
    ours = uses(cluster, plan)
    gained = sum(use.busy for use in ours) / len(ours) - mean
    sent = f"its {amount(rule.transferred_bytes)} sent a step ({amount(plan.transferred_bytes)} in this plan)"
    if gained > 0:
        return f"{word(rule)} leaves {idle}, waiting for {sent}"
    return f"{word(rule)} has more work on the devices that are busiest, with {sent}"


def _idle(used: Sequence[Busy]) -> str:
    """`gpu:2 and gpu:3 idle 21 % of the step`, of the devices that are idle at least half as long as the idlest."""
    least = min(use.busy for use in used)
    idle = [use for use in used if 1 - use.busy >= (1 - least) / 2]
    names = [use.device for use in idle]
    share = 100 * sum(1 - use.busy for use in idle) / len(idle)
    if len(names) == len(used) > 1:
        return f"all {len(used)} devices idle {share:.0f} % of the step"
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    shown = listed if len(names) <= MOST_NAMES else f"{len(names)} of {len(used)} devices"
    return f"{shown} idle {share:.0f} % of the step"


def _short(cluster: Cluster, steps: Sequence[AlternativeStep]) -> str:
    """What the rules that come closest lack."""
    near = sorted((step for step in steps if not step.plan), key=lambda step: (lacks(cluster, step) or ("", 0))[1])
    return "; ".join(f"{word(step)}: {refused(cluster, step)}" for step in near[:MOST_NAMES])


def _each(step: AlternativeStep) -> float:
    assert step.step_time_ns is not None
    return step.step_time_ns / step.micro_batches


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ranks(cluster: Cluster, step: AlternativeStep) -> dict[str, int]:
    """The accelerators that work, each with its micro-batches: the ranks, in the order of the cluster."""
    names = [cluster.device_names[device] for device in cluster.accelerators.tolist()]
    return {name: step.micro_batches_on[name] for name in names if step.micro_batches_on[name]}


def _launched(cluster: Cluster, step: AlternativeStep) -> str:
    """The launcher of a process for each rank."""
    ranks, nodes = len(_ranks(cluster, step)), max(1, sum(device.kind == "cpu" for device in cluster.devices))
    if nodes > 1 and ranks % nodes == 0:
        return f"torchrun --nnodes {nodes} --nproc-per-node {ranks // nodes} ..."
    return f"torchrun --nproc-per-node {ranks} ..."


def _accumulated(cluster: Cluster, step: AlternativeStep) -> str:
    """The accumulation steps: `2 accumulation steps a rank`, `1, 3 accumulation steps on ranks 0 to 1`."""
    shares = [*_ranks(cluster, step).values()]
    if len(set(shares)) == 1:
        return f"{shares[0]} accumulation step{'s' * (shares[0] > 1)} a rank"
    return f"{', '.join(map(str, shares))} accumulation steps on ranks 0 to {len(shares) - 1}"


def _one_card(cluster: Cluster, step: AlternativeStep) -> str:
    device, number = next(iter(_ranks(cluster, step).items()))
    return f"one process on {device}, {number} accumulation step{'s' * (number > 1)}"


def _ddp(cluster: Cluster, step: AlternativeStep) -> str:
    several = max(_ranks(cluster, step).values()) > 1
    sync = ", no_sync() for all but the last" if several else ""
    return f"{_launched(cluster, step)}, DistributedDataParallel(model), {_accumulated(cluster, step)}{sync}"


def _fsdp(cluster: Cluster, step: AlternativeStep) -> str:
    after = "True" if step.copies == "fetched" else "False"
    uneven = len(set(_ranks(cluster, step).values())) > 1
    wait = " (ranks wait for each other in each, so pad the shorter ones)" if uneven else ""
    mesh = ""
    if step.replicas > 1:  # hybrid sharding: all weights in each node
        ranks = len(_ranks(cluster, step)) // step.replicas
        mesh = f'mesh=init_device_mesh("cuda", ({step.replicas}, {ranks})), '
    return (
        f"{_launched(cluster, step)}, fully_shard(block, {mesh}reshard_after_forward={after}) for each block, then "
        f"fully_shard(model{', the same mesh' if mesh else ''}), {_accumulated(cluster, step)}{wait}"
    )


def _hybrid(cluster: Cluster, step: AlternativeStep) -> str:
    return (
        f"{_launched(cluster, step)}, TorchRec's DistributedModelParallel with each table at one rank, the dense part "
        f"in DistributedDataParallel, {_accumulated(cluster, step)}"
    )


def _experts(cluster: Cluster, step: AlternativeStep) -> str:
    return (
        f"{_launched(cluster, step)}, expert parallelism of degree {len(_ranks(cluster, step))}, the rest in "
        f"DistributedDataParallel, {_accumulated(cluster, step)}"
    )


def _pipeline(cluster: Cluster, step: AlternativeStep) -> str:
    name, stages = SCHEDULES[step.planner]
    several = f" with {stages} stages a rank" if stages > 1 else ""
    given = "stages" if stages > 1 or name == "ScheduleInterleavedZeroBubble" else "stage"
    return (
        f"{_launched(cluster, step)}, torch.distributed.pipelining, {name}({given}, n_microbatches="
        f"{step.micro_batches}){several}"
    )


def _dp_pp(cluster: Cluster, step: AlternativeStep) -> str:
    mesh = f'init_device_mesh("cuda", ({step.replicas}, {len(_ranks(cluster, step)) // step.replicas}))'
    return (
        f"{_launched(cluster, step)}, {mesh}, torch.distributed.pipelining over its second dimension, each stage in "
        f"DistributedDataParallel over the first, {step.micro_batches // step.replicas} micro-batches a replica"
    )


def _without(cluster: Cluster, step: AlternativeStep) -> str:
    return f"{len(_ranks(cluster, step))} ranks; {WITHOUT_CLASS[step.planner]}"


# how to run each rule, the simplest first: of several that are enough the first is advised
HOW: Mapping[str, Callable[[Cluster, AlternativeStep], str]] = {
    "one-card": _one_card,
    "ddp": _ddp,
    "fsdp": _fsdp,
    "hybrid": _hybrid,
    "expert-parallel": _experts,
    **dict.fromkeys(SCHEDULES, _pipeline),
    "dp-pp": _dp_pp,
    **dict.fromkeys(WITHOUT_CLASS, _without),
}
