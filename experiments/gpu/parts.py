"""The checks, one function each: what it returns is what the results hold. `Skipped` says that a check has nothing to run on, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from experiments.gpu import workloads
from gnnplace.execution.machine import gpus

if TYPE_CHECKING:
    from gnnplace.cluster import Cluster
    from gnnplace.execution.torch_workload import TorchWorkload
    from gnnplace.execution.workload import Plan

LOADER = "gnnplace.execution.workload_reference:load"
SEED, LIMIT_S, STEPS, PLACEMENTS = 0, 150.0, 3, 10
LOGICAL = (2, 4)
LARGE_NS = 20e6
NEEDED = "needs {name!r}, which is not installed"


class Skipped(Exception):
    """A check that can't be made here, with the reason."""


def executor() -> dict[str, Any]:
    """Losses and variables of placed steps against eager PyTorch, over random placements on every mixture of devices that there is."""
    from gnnplace.execution.measure import difference, reference_kind
    from gnnplace.execution.measurement import MeasurementError

    found = {}
    for name in workloads.NAMES:
        loaded = _loaded(name)
        for words, kinds in _mixtures():
            plan = _spread(loaded, kinds)
            try:
                with closing(loaded.start(plan)) as step:
                    step.run(STEPS)
                    same = difference(step.outputs(), *loaded.unplaced(STEPS, reference_kind([plan])))
                    outcome = {"largest": same.largest, "worst": same.worst, "against": same.reference, "devices": step.described()}
            except MeasurementError as failed:
                outcome = {"outcome": failed.outcome, "reason": failed.reason}
            found[f"{name}, {words}"] = outcome
    return found


def overhead() -> dict[str, Any]:
    """The whole step on one device by the executor, over eager PyTorch's own, timed in turns."""
    import numpy as np
    import torch

    from gnnplace.execution.timing import ratio, timed
    from gnnplace.execution.torch_workload import EagerStep
    from gnnplace.execution.workload import Plan

    kind, found = _kind(), {}
    for name in workloads.NAMES:
        loaded = _loaded(f"{name}_large" if kind == "gpu" else name)
        eager = EagerStep(loaded._step, torch.device("cuda" if kind == "gpu" else "cpu"))
        plan = Plan(_devices([kind]), np.zeros(loaded.graph.num_ops, dtype=np.int32), loaded.graph.order)
        with closing(loaded.start(plan)) as step:
            placed, own = timed([step.run, _clocked(eager.run)], _protocol())
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

    cluster = _cluster()
    with Host(LOADER, _reference("attention"), SEED, limit_s=LIMIT_S) as host:
        costs = profile(host, cluster, steps=10)
    fits = {" -> ".join(pair): links.fit_link(samples)._asdict() for pair, samples in costs.links.items()}
    totals = {kind: int(times.sum()) for kind, times in costs.time_ns.items()}
    return {"ops": len(costs.op_names), "total_ns": totals, "links": fits, "hardware": costs.provenance and costs.provenance.hardware}


def calibrated() -> dict[str, Any]:
    """The rooflines of this machine's devices, fitted to the ops of all steps."""
    from gnnplace.costs import calibration
    from gnnplace.execution.host import Host
    from gnnplace.execution.profile import profile

    cluster, measured = _cluster(), []
    for name in workloads.NAMES:
        with Host(LOADER, _reference(name), SEED, limit_s=LIMIT_S) as host:
            measured.append((host.graph, profile(host, cluster, steps=10)))
    _, fits = calibration.calibrated(cluster, measured)
    return {name: {"ops": fit.num_ops, "median_error": fit.median_error, "total_error": fit.total_error} for name, fit in fits.items()}


def fidelity() -> dict[str, Any]:
    """Measured against simulated with profiled costs: placements of each step, in turns."""
    import numpy as np
    from scipy.stats import spearmanr

    from gnnplace.costs import links, profiled
    from gnnplace.evaluate.simulator import simulate
    from gnnplace.execution.host import Host
    from gnnplace.execution.measure import measure
    from gnnplace.execution.profile import profile
    from gnnplace.execution.workload import plan

    found = {}
    for name in workloads.NAMES:
        with Host(LOADER, _reference(_sized(name)), SEED, limit_s=LIMIT_S) as host:
            cluster = _pair()
            costs = profile(host, cluster, steps=10)
            problem = profiled.problem(host.graph, links.measured(cluster, [costs]), costs)
            placements = _placements(problem)
            results = simulate(problem, list(placements.values()), timeline=True)
            plans = [plan(problem, p, r.timeline) for p, r in zip(placements.values(), results, strict=True) if r.timeline]
            measured = np.array([each.median_ns for each in measure(host, plans, _protocol())], dtype=float)
        simulated = np.array([result.step_time_ns for result in results], dtype=float)
        found[name] = {
            "devices": list(cluster.device_names), "spearman": float(spearmanr(measured, simulated).statistic),
            "median_error": float(np.median(np.abs(simulated - measured) / measured)),
            "choice_over_best": float(measured[simulated.argmin()] / measured.min()),
            "rows": {name: [m, s] for name, m, s in zip(placements, measured.tolist(), simulated.tolist(), strict=True)},
        }  # fmt: skip
    return found


def training() -> dict[str, Any]:
    """Policy training on the GPU."""
    raise Skipped("the learner trains on the CPU: it has no setting for another device")


def tensorflow() -> dict[str, Any]:
    """The TensorFlow executor."""
    raise Skipped("this script has no check of a TensorFlow executor")


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "executor": executor, "overhead": overhead, "profile": profiled, "calibration": calibrated, "fidelity": fidelity,
    "training": training, "tensorflow": tensorflow,
}  # fmt: skip


def run(name: str) -> dict[str, Any]:
    """One check: its figures, or why there are none. A package that is missing is a reason to skip; what else goes wrong is a failure."""
    try:
        return {"status": "done", "found": PARTS[name]()}
    except Skipped as skipped:
        return {"status": "skipped", "reason": str(skipped)}
    except ModuleNotFoundError as missing:
        return {"status": "skipped", "reason": NEEDED.format(name=missing.name)}
    except Exception as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def _kind() -> str:
    return "gpu" if gpus() else "cpu"


def _cluster() -> Cluster:
    from gnnplace.execution.machine import cores, machine

    return machine("here") if gpus() else cores("here", min(2, _num_cores()))


def _pair() -> Cluster:
    """Two devices whose steps are comparable: two GPUs, or a GPU and a CPU device, or two cores."""
    from gnnplace.execution.machine import cores, with_gpus

    found = gpus()
    if len(found) > 1:
        whole = with_gpus("here", found[:2])
        return type(whole)("here", whole.devices[1:], tuple(link for link in whole.links if "cpu:0" not in (link.src, link.dst)))
    if found:
        return with_gpus("here", found)
    if _num_cores() < 2:
        raise Skipped("two devices need two cores, and this process may use one")
    return cores("here", 2)


def _sized(name: str) -> str:
    return f"{name}_large" if len(gpus()) > 1 else name


def _num_cores() -> int:
    from gnnplace.execution.pinned import usable_cores

    return len(usable_cores())


def _mixtures() -> Iterator[tuple[str, list[str]]]:
    """Kinds of devices that placed steps are checked on, in words: where there is no GPU, on cores and on threads."""
    number = len(gpus())
    if not number:
        for count in range(1, min(2, _num_cores()) + 1):
            yield f"{count} core(s)", ["cpu"] * count
        return
    yield "CPU + GPU", ["cpu", "gpu"]
    yield "1 GPU", ["gpu"]
    for count in LOGICAL:
        yield f"{count} devices on {min(count, number)} GPU(s)", ["gpu"] * count
    if number > max(LOGICAL):
        yield f"{number} GPUs", ["gpu"] * number


def _devices(kinds: Sequence[str]) -> Any:
    from gnnplace.cluster import Device

    return tuple(Device(f"{kind}:{place}", kind, 2**34, 10**12, 10**11) for place, kind in enumerate(kinds))


def _loaded(name: str) -> TorchWorkload:
    import torch

    from gnnplace.execution.torch_workload import TorchWorkload

    torch.manual_seed(SEED)
    return TorchWorkload(getattr(workloads, name)(), name)


def _reference(name: str) -> str:
    return f"experiments.gpu.workloads:{name}"


def _spread(loaded: TorchWorkload, kinds: Sequence[str]) -> Plan:
    """Colocation groups on devices at random."""
    import numpy as np

    from gnnplace.execution.workload import Plan
    from gnnplace.transforms.units import colocation_closure

    graph = loaded.graph
    drawn = np.random.default_rng(SEED).integers(len(kinds), size=graph.num_ops).astype(np.int32)
    return Plan(_devices(kinds), drawn[colocation_closure(graph)], graph.order)


def _placements(problem: Any) -> dict[str, Any]:
    """Each device alone, what planners find, and random ones."""
    import numpy as np

    from gnnplace import build
    from gnnplace.baselines.random_units import draw
    from gnnplace.evaluate.simulator import simulate
    from gnnplace.placement import Placement
    from gnnplace.transforms.units import allowed, expand, units

    named = build.planners(problem, simulate, SEED)
    found = {
        f"{device} alone": Placement(np.full(problem.num_ops, place, dtype=np.int32))
        for place, device in enumerate(problem.cluster.device_names[:2])
    }
    found |= {name: named[name](problem) for name in ("metis-weights", "metis-coarse", "heft-weights", "heft-coarse")}
    made, generator = units(problem.graph, "weights"), np.random.default_rng(SEED)
    for number in range(PLACEMENTS - len(found)):
        found[f"random {number}"] = Placement(expand(made, draw(allowed(problem, made), 1, generator)[0].astype(np.int32)))
    return found


def _protocol() -> Any:
    """The steady protocol, cut short: this is a check, not a measurement of a placement."""
    from gnnplace.execution.timing import Protocol

    return Protocol("steady", most_windows=6, steps=15, enough_ns=2 * 10**9)


def _clocked(run: Callable[[], object]) -> Callable[[int], list[int]]:
    from time import monotonic_ns

    def steps(count: int) -> list[int]:
        times = []
        for _ in range(count):
            start = monotonic_ns()
            run()
            times.append(monotonic_ns() - start)
        return times

    return steps
