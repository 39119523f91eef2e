"""Lower bounds on the step time of every feasible placement, each with a proof.

They limit how far a placement is from the optimum.

A feasible placement respects `allowed`, keeps colocation groups together, needs only links that exist and fits every
memory. Each bound holds by itself. The module in brackets proves it:

- `critical-path`: the longest path, with each op on the fastest device that allows it and has the memory, and free
  transfers.
- `load`: the least time for all work if units could be split among unequal devices with limited memories (`load`).
- `channels`: as `load`, with the transfers that are necessary because no class of devices can hold all state, so that
  some state is not on the device of its readers (`channels`).
- `paths`: for some op, the least time before it, its own time and the least time after it. This counts transfers that
  no placement avoids, ops that share one device, and the load of its ancestors and descendants (`paths`).
- `transfers`: as `paths` without the load of ancestors and descendants; it replaces `paths` beyond `MOST_QUADRATIC`
  ops.
- `windows`: the load of the ops that can only run within some window of time, plus the least time before and after it
  (`paths`).
- `split`: connected ops either run on one device with enough memory, or an edge between them crosses devices (`paths`).

A bound that would show that no placement is feasible is left out.

A step of several micro-batches may take many forms: replicas, shares, where copies stand. Its bounds are those of the
form that is given. `bound_of_forms` holds for every form (`forms`), and adds one to them:

- `traffic`: as `load`, with the transfers that a division of each micro-batch among unequal devices takes (`traffic`).

With `fusion`, the bounds hold for every fusion of the ops too. They are the bounds of another problem, without fusion,
in which a step takes no longer than any fused step (`unfused`). A fused op takes at least the sum, over its ops, of
their arithmetic and of the time that the roofline does not explain, plus the launch of its heavy op if it has one
(`costs.fused_ops`). So in that problem each op takes only that much. The ops of a group run one after another while the
fused op would run. Their tensors then need buffers too, so each memory is larger by all outputs that may stay within a
fused op.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float

from gnnplace.bounds.channels import channels_ns
from gnnplace.bounds.forms import bounds_of_forms
from gnnplace.bounds.load import best_prices, load_ns, loads, op_prices
from gnnplace.bounds.paths import Ends, best_window, ends, split_ns, through_ns
from gnnplace.bounds.relaxed import NEVER, Relaxed, relaxed
from gnnplace.cluster import MAX_BYTES, Cluster
from gnnplace.constraints import Constraint, constrained
from gnnplace.costs.fused_ops import parts
from gnnplace.fusion.rules import rules
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.problems import Problem
from gnnplace.result import LeastTimes
from gnnplace.schedules.paths import longest_paths

MOST_QUADRATIC = 20_000  # ops up to which sets of ancestors are computed: 50 MB and about a second
MOST_PRICED = 64  # classes of devices that the load bound distinguishes
MOST_CLASSES = 4  # classes that paths distinguish: their time grows with the square
_bounds: WeakKeyDictionary[Problem, Mapping[str, int]] = WeakKeyDictionary()


def bounds(problem: Problem, fusion: bool = False) -> Mapping[str, int]:
    """Every lower bound in ns, by name. They are computed once and kept as long as the problem lives."""
    posed = unfused(problem) if fusion else problem
    if posed not in _bounds:
        priced, classes = relaxed(posed, MOST_PRICED), relaxed(posed, MOST_CLASSES)
        critical_path_ns = longest_paths(posed.graph, priced.fastest_ns).critical_path_ns
        by_name = {"critical-path": critical_path_ns} | _loads_and_paths(priced, classes)
        if posed.graph.copies is not None and not fusion:  # a sum that is fused moves fewer bytes
            of_forms = bounds_of_forms(posed)
            by_name |= {name: max(bound, by_name.get(name, 0)) for name, bound in of_forms.items()}
        _bounds[posed] = {name: bound for name, bound in by_name.items() if bound < NEVER}
    return _bounds[posed]


def lower_bound(problem: Problem, fusion: bool = False) -> int:
    """The largest of all lower bounds, in ns."""
    return max(bounds(problem, fusion).values())


def bound_name(problem: Problem, fusion: bool = False) -> str:
    """The name of the largest lower bound; the first on a tie."""
    by_name = bounds(problem, fusion)
    return max(by_name, key=lambda name: by_name[name])


def bound_of_forms(problem: Problem) -> int:
    """The largest lower bound in ns on the steps of a problem in every form; of one micro-batch, `lower_bound`."""
    return max(_of_forms(problem).values())


def bound_of_forms_name(problem: Problem) -> str:
    """The name of the largest lower bound on the steps in every form; the first on a tie."""
    by_name = _of_forms(problem)
    return max(by_name, key=lambda name: by_name[name])


def bound_without_cpus(problem: Problem) -> int | None:
    """The largest lower bound in ns on the steps, in every form, that use accelerators alone, as people do.

    None without CPUs beside accelerators, and if some op needs a CPU.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2", micro_batches=2)
        >>> bound_without_cpus(problem) >= bound_of_forms(problem)
        True
    """
    if len(problem.cluster.accelerators) == problem.num_devices:
        return None
    try:
        return bound_of_forms(constrained(problem, Constraint(accelerators_only=True)).problem)
    except ValueError:
        return None


def _of_forms(problem: Problem) -> Mapping[str, int]:
    return bounds(problem) if problem.graph.copies is None else bounds_of_forms(problem)


def least_times(problem: Problem) -> LeastTimes:
    """The largest lower bound, and the least time before and after each op on each device."""
    priced, classes = relaxed(problem, MOST_PRICED), relaxed(problem, MOST_CLASSES)
    times = _ends(classes, *op_prices(priced, best_prices(loads(priced))))
    return LeastTimes(int(lower_bound(problem)), times.head_ns[:, classes.class_of], times.tail_ns[:, classes.class_of])


def _ends(classes: Relaxed, price: Float[np.ndarray, " ops"], worth: float) -> Ends:
    return ends(classes, price, worth) if len(price) <= MOST_QUADRATIC else ends(classes)


def _loads_and_paths(priced: Relaxed, classes: Relaxed) -> dict[str, int]:
    """All bounds except the critical path; the load is computed on `priced`, paths on the fewer `classes`."""
    needs = loads(priced)
    prices = best_prices(needs)
    price, worth = op_prices(priced, prices)
    quadratic = len(price) <= MOST_QUADRATIC
    times = _ends(classes, price, worth)
    through = through_ns(classes, times)
    bounds = {"load": load_ns(needs, prices), "paths" if quadratic else "transfers": through}
    if (channels := channels_ns(priced)) > 0:
        bounds["channels"] = channels
    if through >= NEVER:
        return bounds
    window = best_window(times.head_ns.min(axis=1), times.tail_ns.min(axis=1), price)
    inside = loads(priced, window.ops)
    within = max(load_ns(inside, prices), load_ns(inside, best_prices(inside)))
    return bounds | {"windows": window.head_ns + within + window.tail_ns, "split": split_ns(classes, times)}


_unfused: WeakKeyDictionary[Problem, Problem] = WeakKeyDictionary()


def unfused(problem: Problem) -> Problem:
    """A problem without fusion whose steps take no longer than any fused step of `problem`.

    It is kept as long as `problem` lives.
    """
    if problem not in _unfused:
        fuses, part = may_fuse(problem.graph), parts(problem)[0]
        launch_ns = np.where(rules(problem.graph).heavy[:, None], part.launch_ns, 0)
        least_ns = np.where(fuses[:, None], launch_ns + part.beyond_ns + part.arithmetic_ns, problem.time_ns)
        _unfused[problem] = Problem(problem.graph, _roomier(problem.graph, problem.cluster, fuses), least_ns)
    return _unfused[problem]


def may_fuse(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops that may be fused with some neighbour."""
    fusable, heavy = rules(graph)
    src, dst = (ends[graph.edge_data != NONE] for ends in (graph.edge_src, graph.edge_dst))
    joins = fusable[src] & fusable[dst] & ~(heavy[src] & heavy[dst])
    mask = np.zeros(graph.num_ops, dtype=bool)
    mask[src[joins]] = mask[dst[joins]] = True
    return mask


def _roomier(graph: ComputationGraph, cluster: Cluster, fuses: Bool[np.ndarray, " ops"]) -> Cluster:
    """The cluster with more memory on each device: room for all outputs of ops that may be fused."""
    room = int(graph.output_bytes[fuses[graph.output_op[graph.output_root]]].sum())
    devices = [replace(device, memory_bytes=min(MAX_BYTES, device.memory_bytes + room)) for device in cluster.devices]
    return replace(cluster, devices=tuple(devices))
