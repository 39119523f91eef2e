"""The checks, one function each: it returns what the results hold, or raises SkippedError: there is nothing here to run on, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from experiments.gpu import workloads
from experiments.gpu.here import (
    SEED,
    SkippedError,
    clocked,
    cluster,
    loaded_here,
    main_kind,
    mixtures,
    plain_devices,
    protocol,
    reference,
    sized,
    some_placements,
    spread,
    two_devices,
)
from gnnplace.execution.machine import gpus

if TYPE_CHECKING:
    from gnnplace.execution.workload import Workload

LIMIT_S, STEPS = 200.0, 3
LOGICAL_BYTES = 2**31
LARGE_NS = 20e6
NEEDED = "needs {name!r}, which is not installed"


def executor() -> dict[str, Any]:
    """Losses and variables of placed steps against eager PyTorch, over random placements on every mixture of devices that there is."""
    found = {}
    for name in workloads.NAMES:
        loaded = loaded_here(name)
        found |= {f"{name}, {words}": _compared(loaded, kinds) for words, kinds in mixtures()}
    return found


def _compared(loaded: Workload, kinds: Sequence[str]) -> dict[str, Any]:
    from gnnplace.execution.measure import difference, reference_kind
    from gnnplace.isolation.outcome import MeasurementError

    plan = spread(loaded, kinds)
    try:
        with closing(loaded.start(plan)) as step:
            step.run(max(0, STEPS - len(step.outputs().losses)))
            same = difference(step.outputs(), *loaded.unplaced(STEPS, reference_kind([plan])))
            return {"largest": same.largest, "worst": same.worst, "against": same.reference, "devices": step.described()}
    except MeasurementError as failed:
        return {"outcome": failed.outcome, "reason": failed.reason}


def overhead() -> dict[str, Any]:
    """The whole step on one device by the executor, over eager PyTorch's own, timed in turns."""
    import numpy as np
    import torch

    from gnnplace.execution.timing import ratio, timed
    from gnnplace.execution.torch.workload import EagerStep
    from gnnplace.execution.workload import ExecutionPlan

    kind, found = main_kind(), {}
    for name in workloads.NAMES:
        loaded = loaded_here(f"{name}_large" if kind == "gpu" else name)
        eager = EagerStep(loaded._step, torch.device("cuda" if kind == "gpu" else "cpu"))
        plan = ExecutionPlan(plain_devices([kind]), np.zeros(loaded.graph.num_ops, dtype=np.int32), loaded.graph.order)
        with closing(loaded.start(plan)) as step:
            placed, own = timed([step.run, clocked(eager.run)], protocol())
            found[name] = {
                "ops": loaded.graph.num_ops, "eager_ns": float(np.median(own)), "executor_ns": float(np.median(placed)),
                "ratio": ratio(placed, own)._asdict(), "counts": bool(np.median(own) > LARGE_NS), "device": step.described()[0],
            }  # fmt: skip
    return found


def profiled() -> dict[str, Any]:
    """Every op of a step on each kind of device, and the links between the kinds."""
    from gnnplace.costs import links
    from gnnplace.execution.host import Host
    from gnnplace.execution.profile import profile
    from gnnplace.sources.workload import LOADER

    here = cluster()
    with Host(LOADER, reference("attention"), SEED, limit_s=LIMIT_S) as host:
        costs = profile(host, here, steps=10)
    fits = {" -> ".join(pair): vars(links.fit_link(samples)) for pair, samples in costs.links.items()}
    totals = {kind: int(times.sum()) for kind, times in costs.time_ns.items()}
    return {"ops": len(costs.op_names), "total_ns": totals, "links": fits, "hardware": costs.provenance and costs.provenance.hardware}


def calibrated() -> dict[str, Any]:
    """The rooflines of this machine's devices, fitted to the ops of all steps."""
    from gnnplace.costs import calibration
    from gnnplace.execution.host import Host
    from gnnplace.execution.profile import profile
    from gnnplace.sources.workload import LOADER

    here, measured = cluster(), []
    for name in workloads.NAMES:
        with Host(LOADER, reference(name), SEED, limit_s=LIMIT_S) as host:
            measured.append((host.graph, profile(host, here, steps=10)))
    _, fits = calibration.calibrated(here, measured)
    return {name: {"ops": fit.num_ops, "median_error": fit.median_error, "total_error": fit.total_error} for name, fit in fits.items()}


def fidelity() -> dict[str, Any]:
    """Measured against simulated with profiled costs: placements of each step, in turns."""
    import numpy as np
    from scipy.stats import spearmanr

    from gnnplace.costs import links
    from gnnplace.costs.measured import problem as measured_problem
    from gnnplace.execution.host import Host
    from gnnplace.execution.measure import measure
    from gnnplace.execution.profile import profile
    from gnnplace.execution.workload import plan
    from gnnplace.simulator.simulator import simulate
    from gnnplace.sources.workload import LOADER

    found = {}
    for name in workloads.NAMES:
        with Host(LOADER, reference(sized(name)), SEED, limit_s=LIMIT_S) as host:
            here = two_devices()
            costs = profile(host, here, steps=10)
            problem = measured_problem(host.graph, links.measured(here, [costs]), costs)
            placements = some_placements(problem)
            results = simulate(problem, list(placements.values()), timeline=True)
            plans = [plan(problem, p, r.timeline) for p, r in zip(placements.values(), results, strict=True) if r.timeline]
            measured = np.array([each.median_ns for each in measure(host, plans, protocol())], dtype=float)
        simulated = np.array([result.step_time_ns for result in results], dtype=float)
        found[name] = {
            "devices": list(here.device_names), "spearman": float(spearmanr(measured, simulated).statistic),
            "median_error": float(np.median(np.abs(simulated - measured) / measured)),
            "choice_over_best": float(measured[simulated.argmin()] / measured.min()),
            "rows": {name: [m, s] for name, m, s in zip(placements, measured.tolist(), simulated.tolist(), strict=True)},
        }  # fmt: skip
    return found


def training() -> dict[str, Any]:
    """Updates a second of both shipped configurations, on the GPU and on the cores, without the simulator."""
    from experiments.gpu.throughput import throughput

    return dict(throughput())


def tensorflow() -> dict[str, Any]:
    """Losses and variables of placed TensorFlow steps against TensorFlow's own session, like those of PyTorch."""
    from experiments.gpu import tensorflow_workloads
    from gnnplace.execution.tensorflow.workload import TensorFlowWorkload
    from gnnplace.frontends.tensorflow.step import Machine

    found = {}
    for name in tensorflow_workloads.NAMES:
        for words, kinds in mixtures():
            machine = Machine(logical_gpu_bytes=LOGICAL_BYTES if kinds.count("gpu") > len(gpus()) else None)
            with closing(TensorFlowWorkload(getattr(tensorflow_workloads, name)(), machine)) as loaded:
                found[f"{name}, {words}"] = _compared(loaded, kinds)
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "executor": executor, "overhead": overhead, "profile": profiled, "calibration": calibrated, "fidelity": fidelity,
    "training": training, "tensorflow": tensorflow,
}  # fmt: skip


def run(name: str) -> dict[str, Any]:
    """One check: its figures, or why there are none. A package that is missing is a reason to skip; what else goes wrong is a failure."""
    try:
        return {"status": "done", "found": PARTS[name]()}
    except SkippedError as skipped:
        return {"status": "skipped", "reason": str(skipped)}
    except ModuleNotFoundError as missing:
        return {"status": "skipped", "reason": NEEDED.format(name=missing.name)}
    except Exception as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
