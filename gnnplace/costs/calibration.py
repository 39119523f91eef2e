"""Calibrated costs: fits the roofline constants of devices to measured times of ops, for the devices of a cluster.

An op's weight in the fit is one half the same for all ops, which determines the launch time, and one half in proportion
to its time, which keeps the total of the step right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.cluster import MAX_RATE, Cluster, Device
from gnnplace.costs import links, roofline
from gnnplace.costs.measured import NOT_MEASURED, MeasuredCosts
from gnnplace.costs.robust_fit import fit
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import NS_PER_S

MIN_OPS = 20  # ops that a dtype needs to have a rate of its own, and that determine a constant
QUANTILES = (0.5, 0.8, 0.95)  # of the ops' rates, from which fits start


class Measured(NamedTuple):
    """A graph and the measured time of each op on the device, `NOT_MEASURED` for ops that do not run there."""

    graph: ComputationGraph
    time_ns: Int64[np.ndarray, " ops"]


@dataclass(frozen=True)
class Calibration:
    """A device with fitted constants, and the errors of its roofline on the measured times.

    `median_error` is the median relative error of ops with a kernel. `total_error` is (predicted - measured) / measured
    for the sum of all ops. `undetermined` names the constants that bound the time of fewer than `MIN_OPS` ops, so that
    the fit hardly determines them.
    """

    device: Device
    median_error: float
    total_error: float
    num_ops: int
    undetermined: tuple[str, ...]


def fit_device(template: Device, measured: Sequence[Measured]) -> Calibration:
    """The device `template` with fitted `launch_ns`, `dispatch_ns`, `memory_bytes_per_s` and `flops_per_s`.

    `flops_per_s` is a rate by dtype if several dtypes have enough ops. A constant that no op depends on keeps its value
    in the template. Raises ValueError if no op with a kernel was measured.
    """
    ops = _columns(measured)
    kernels, dispatched = ops.of(ops.kernel), ops.of(ops.dispatched)
    if not len(kernels.time_ns):
        raise ValueError(f"device {template.name!r}: no op with a kernel was measured; there is nothing to fit")
    device = _roofline(template, kernels)
    if len(dispatched.time_ns):
        device = replace(device, dispatch_ns=round(float(np.median(dispatched.time_ns))))
    undetermined = _undetermined(device, kernels)
    if len(dispatched.time_ns) < MIN_OPS:
        undetermined = (*undetermined, "dispatch_ns")
    return _calibration(device, measured, undetermined)


def calibrated(
    cluster: Cluster, measured: Sequence[tuple[ComputationGraph, MeasuredCosts]]
) -> tuple[Cluster, dict[str, Calibration]]:
    """The cluster with fitted constants of all measured devices and links, and the fit of each measured device by name.

    Devices and links without measurements keep their constants; `links.unmeasured` lists such links. Raises ValueError
    if costs belong to another graph than the one that they stand with, or are too few to fit.
    """
    for graph, costs in measured:
        if costs.graph_sha256 != graph.sha256:
            raise ValueError(
                f"the costs of {costs.graph_name!r} (sha256 {costs.graph_sha256}) are not those of the graph "
                f"{graph.name!r}"
            )
    fits: dict[str, Calibration] = {}
    for device in cluster.devices:
        times = [Measured(graph, costs.device_ns(device)) for graph, costs in measured if costs.covers(device)]
        if times:
            fits[device.name] = fit_device(device, times)
    devices = tuple(fits[device.name].device if device.name in fits else device for device in cluster.devices)
    return links.measured(replace(cluster, devices=devices), [costs for _, costs in measured]), fits


@dataclass(frozen=True, eq=False)
class _Ops:
    """Measured ops of all graphs, as columns; `dtype` is that of an op's first output, "" if it has none."""

    time_ns: Float[np.ndarray, " ops"]
    flops: Float[np.ndarray, " ops"]
    bytes: Float[np.ndarray, " ops"]
    dtype: np.ndarray
    kernel: Bool[np.ndarray, " ops"]
    dispatched: Bool[np.ndarray, " ops"]

    def of(self, rows: Bool[np.ndarray, " ops"]) -> _Ops:
        return _Ops(*(column[rows] for column in vars(self).values()))


def _columns(measured: Sequence[Measured]) -> _Ops:
    parts = []
    for graph, time_ns in measured:
        names = np.array([*graph.output_dtype.values, ""])  # index -1 (no dtype) is the last
        columns = (
            time_ns,
            graph.flops,
            graph.effective_bytes_accessed,
            names[roofline.first_dtype(graph)],
            graph.kernel,
            graph.dispatched,
        )
        parts.append([column[time_ns != NOT_MEASURED] for column in columns])
    time_ns, flops, moved, *masks = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _Ops(time_ns.astype(float), flops.astype(float), moved.astype(float), *masks)


def _roofline(template: Device, ops: _Ops) -> Device:
    """The template with launch time and rates fitted to `ops`, all of which have a kernel.

    The ratio of contended to uncontended memory rate stays.
    """
    dtypes = _dtypes(ops)
    rate_of = np.array([dtypes.index(name) if name in dtypes else NONE for name in ops.dtype.tolist()])

    def model(constants: Float[np.ndarray, " constants"]) -> Float[np.ndarray, " ops"]:
        launch, ns_per_byte, *ns_per_flop = constants
        slowness = np.array([*ns_per_flop, max(ns_per_flop)])  # index -1: other dtypes have the lowest rate
        return launch + np.maximum(slowness[rate_of] * ops.flops, ns_per_byte * ops.bytes)

    times = np.maximum(1.0, ops.time_ns)
    weight = 1 / len(times) + times / times.sum()
    fits = [fit(model, start, times, weight) for start in _starts(template, ops, rate_of, len(dtypes))]
    launch, ns_per_byte, *ns_per_flop = min(fits, key=lambda result: result.error).parameters.tolist()
    rates = [_rate(slowness) for slowness in ns_per_flop]
    memory, contended = _rate(ns_per_byte), template.contended_memory_bytes_per_s
    return replace(
        template,
        launch_ns=round(launch),
        memory_bytes_per_s=memory,
        contended_memory_bytes_per_s=contended and max(1, contended * memory // template.memory_bytes_per_s),
        flops_per_s=rates[0] if len(rates) == 1 else dict(zip(dtypes, rates, strict=True)),
    )


def _dtypes(ops: _Ops) -> list[str]:
    """The dtypes with a rate each: those of enough ops with flops. With fewer than two of them, one rate serves all."""
    names, counts = np.unique(ops.dtype[(ops.flops > 0) & (ops.dtype != "")], return_counts=True)
    frequent = names[counts >= MIN_OPS].tolist()
    return frequent if len(frequent) > 1 else [""]


def _starts(
    template: Device, ops: _Ops, rate_of: Int64[np.ndarray, " ops"], num_rates: int
) -> list[Float[np.ndarray, " constants"]]:
    """The points from which fits start.

    The launch time is that of the shortest ops; the rates are quantiles of those that longer ops reach.
    """
    launch = max(1.0, float(np.quantile(ops.time_ns, 0.1)))
    beyond = np.maximum(1.0, ops.time_ns - launch)
    rates = [template.rate(None)] * num_rates

    def slowness(
        amount: Float[np.ndarray, " ops"], rows: Bool[np.ndarray, " ops"], quantile: float, default_rate: int
    ) -> float:
        rows = rows & (amount > 0) & (ops.time_ns >= 2 * launch)
        return float(np.quantile(beyond[rows] / amount[rows], 1 - quantile)) if rows.any() else NS_PER_S / default_rate

    def start(memory: float, arithmetic: float) -> Float[np.ndarray, " constants"]:
        per_byte = slowness(ops.bytes, np.ones(len(beyond), dtype=bool), memory, template.memory_bytes_per_s)
        per_flop = [
            slowness(ops.flops, (rate_of == k) | (num_rates == 1), arithmetic, rate) for k, rate in enumerate(rates)
        ]
        return np.array([launch, per_byte, *per_flop])

    return [start(memory, arithmetic) for memory, arithmetic in product(QUANTILES, QUANTILES)]


def _rate(ns_per_unit: float) -> int:
    return min(MAX_RATE, max(1, round(NS_PER_S / ns_per_unit)))


def _undetermined(device: Device, ops: _Ops) -> tuple[str, ...]:
    """The constants that bound fewer than `MIN_OPS` ops; an op is bound by the largest part of its time."""
    arithmetic = ops.flops * NS_PER_S / np.array([device.rate(name) for name in ops.dtype.tolist()])
    traffic = ops.bytes * NS_PER_S / device.memory_bytes_per_s
    largest = np.argmax([np.full(len(traffic), float(device.launch_ns)), traffic, arithmetic], axis=0)
    bound = {"launch_ns": largest == 0, "memory_bytes_per_s": largest == 1}
    if isinstance(device.flops_per_s, int):
        bound["flops_per_s"] = largest == 2
    else:
        bound |= {f"flops_per_s.{name}": (largest == 2) & (ops.dtype == name) for name in device.flops_per_s}
    return tuple(name for name, rows in bound.items() if rows.sum() < MIN_OPS)


def _calibration(device: Device, measured: Sequence[Measured], undetermined: tuple[str, ...]) -> Calibration:
    """The fitted device with the errors of the roofline that the simulator will use."""
    predicted = np.concatenate([roofline.modelled_ns(graph, device) for graph, _ in measured])
    times = np.concatenate([times for _, times in measured])
    kernel = np.concatenate([graph.kernel for graph, _ in measured])
    timed = times != NOT_MEASURED
    actual = np.maximum(1, times)  # 0 is raised to 1, as in the execution model
    errors = np.abs(predicted - actual)[timed & kernel] / actual[timed & kernel]
    total = int(actual[timed].sum())
    return Calibration(
        device, float(np.median(errors)), (int(predicted[timed].sum()) - total) / total, int(timed.sum()), undetermined
    )
