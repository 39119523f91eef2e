"""What people would do for a step of several micro-batches, as a table for commands and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gnnplace.cluster import Cluster
from gnnplace.formats.placements import Alternatives, AlternativeStep
from gnnplace.report import terminal

HELPS = 0.01  # of a step: a CPU that computes so long is worth a word
MOST_PIPELINES = 3  # in a table; more say little beside the best
# what people call the rules that planners follow
WORDS = {
    "one-card": "one card",
    "ddp": "DDP",
    "fsdp": "FSDP",
    "hybrid": "hybrid",
    "expert-parallel": "expert-parallel",
    "pipedream": "PipeDream",
    "dp-pp": "DP x PP",
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "graphpipe": "GraphPipe",
    "interleaved-1f1b": "interleaved 1F1B",
    "zb-h1": "ZB-H1",
    "zb-v": "ZB-V",
    "v-half": "V-Half",
    "heuristic": "one batch, best heuristic",
}
PIPELINES = ("gpipe", "1f1b", "graphpipe", "interleaved-1f1b", "zb-h1", "zb-v", "v-half")
STANDS = {"free": ", weights kept", "anchored": ", weights kept", "fetched": ", weights fetched for each use"}
HEADER = ("what people do", "M", "micro-batch\nms", "step\nms", "peak GiB of the\nfullest device", "least used",
          "micro-batches on each device")  # fmt: skip


class Busy(NamedTuple):
    """A device and the share of the step for which it computes."""

    device: str
    busy: float


def word(step: AlternativeStep) -> str:
    """What people call a rule; the planner's name for others."""
    return WORDS.get(step.planner, step.planner)


def uses(cluster: Cluster, step: AlternativeStep) -> list[Busy]:
    """The accelerators, each with the share of the step for which it computes, the mean of its streams."""
    assert step.step_time_ns is not None
    streams, names = cluster.streams.tolist(), cluster.device_names
    return [
        Busy(names[device], step.busy_ns[names[device]] / streams[device] / max(1, step.step_time_ns))
        for device in cluster.accelerators.tolist()
    ]


def rows(cluster: Cluster, steps: Sequence[AlternativeStep]) -> list[tuple[str, ...]]:
    """A row of text for each step that is `shown`, under `HEADER`."""
    return [_row(cluster, step) for step in shown(steps)]


def shown(steps: Sequence[AlternativeStep]) -> list[AlternativeStep]:
    """The steps without pipelines beyond the best `MOST_PIPELINES`."""
    worse = {step.planner for step in [step for step in steps if step.planner in PIPELINES][MOST_PIPELINES:]}
    return [step for step in steps if step.plan or step.planner not in worse]


def left_out(steps: Sequence[AlternativeStep]) -> str:
    """The pipelines that are not `shown`, in a line; empty if all are."""
    kept = [step.planner for step in shown(steps)]
    names = [word(step) for step in steps if step.planner not in kept]
    return f"other pipelines, none of them better: {', '.join(names)}" if names else ""


def without_cpus(cluster: Cluster, beside: Alternatives) -> str:
    """How far the plan and the best rule are from what accelerators alone could do, in a line; empty if unknown."""
    plan = next(step for step in beside.steps if step.plan)
    if beside.without_cpus_ns is None or plan.step_time_ns is None or plan.infeasible is not None:
        return ""
    least_ns = beside.without_cpus_ns / plan.micro_batches
    rule = next((step for step in beside.steps if not step.plan and step.infeasible is None), None)
    over = "" if rule is None else f"{word(rule)} takes {_beyond(rule, least_ns)}, "
    helps = ", ".join(f"{use.device} computes for {100 * use.busy:.0f} % of it" for use in _cpus(cluster, plan))
    return (
        f"Accelerators alone take at least {terminal.milliseconds(round(least_ns))} for a micro-batch, in every form: "
        f"{over}this plan {_beyond(plan, least_ns)}{f' ({helps})' if helps else ''}."
    )


def _beyond(step: AlternativeStep, least_ns: float) -> str:
    """`3.4 % more`, of the time for a micro-batch."""
    assert step.micro_batch_time_ns is not None
    beyond = step.micro_batch_time_ns / least_ns - 1
    return f"{100 * abs(beyond):.1f} % {'less' if beyond < 0 else 'more'}"


def _cpus(cluster: Cluster, step: AlternativeStep) -> list[Busy]:
    """The CPUs that compute for at least `HELPS` of the step."""
    assert step.step_time_ns is not None
    shares = [
        Busy(device.name, step.busy_ns[device.name] / device.streams / max(1, step.step_time_ns))
        for device in cluster.devices
        if device.kind == "cpu"
    ]
    return [use for use in shares if use.busy >= HELPS]


def lacks(cluster: Cluster, step: AlternativeStep) -> tuple[str, int] | None:
    """The device that lacks most memory, and the bytes; None where memories suffice or peaks are unknown."""
    if step.peak_memory_bytes is None:
        return None
    missing = {device.name: step.peak_memory_bytes[device.name] - device.memory_bytes for device in cluster.devices}
    device = max(missing, key=missing.__getitem__)
    return (device, missing[device]) if missing[device] > 0 else None


def refused(cluster: Cluster, step: AlternativeStep) -> str:
    """Why a step can't run: `gpu:0 lacks 1.7 GiB`, or another reason in the simulator's words."""
    if (short := lacks(cluster, step)) is None:
        return step.infeasible or ""
    return f"{short[0]} lacks {amount(short[1])}"


def amount(size: int) -> str:
    """`1.7 GiB`, or MiB or KiB below one of these."""
    if 0 < size < 2**20:
        return f"{size / 2**10:,.1f} KiB"
    return terminal.gibibytes(size) if size >= 2**30 else terminal.mebibytes(size)


def _row(cluster: Cluster, step: AlternativeStep) -> tuple[str, ...]:
    plan = "this plan" if step.planner not in WORDS else f"{word(step)}, this plan"
    name = f"> {plan}" if step.plan else word(step)
    used = [str(step.micro_batches_on[cluster.device_names[device]]) for device in cluster.accelerators.tolist()]
    every = f" in each of {step.replicas} nodes" if step.planner == "fsdp" and step.replicas > 1 else ""
    on = ", ".join(used) + STANDS.get(step.copies, "") + every
    if step.infeasible is not None:
        return name, str(step.micro_batches), "no room", "", refused(cluster, step), "", on
    least = min(uses(cluster, step), key=lambda use: use.busy)
    times = terminal.ms(step.micro_batch_time_ns), terminal.ms(step.step_time_ns)
    return name, str(step.micro_batches), *times, _peak(cluster, step), f"{least.device} {100 * least.busy:.0f} %", on


def _peak(cluster: Cluster, step: AlternativeStep) -> str:
    """`8.1 of 11.2 on gpu:2`, of the device whose memory is fullest."""
    peaks = step.peak_memory_bytes or {}
    sized = [device for device in cluster.devices if device.memory_bytes and device.name in peaks]
    full = max(sized, key=lambda device: peaks[device.name] / device.memory_bytes, default=None)
    if full is None:
        return terminal.NONE
    return f"{peaks[full.name] / 2**30:,.1f} of {full.memory_bytes / 2**30:,.1f} on {full.name}"
