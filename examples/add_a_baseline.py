"""A planner of your own, compared with all others: any function from a problem to a placement is one.

A baseline of the package is a file in gnnplace/baselines/ and one line in the table of gnnplace/portfolio/planners.py.
"""

import numpy as np

import gnnplace as gp
from gnnplace.baselines.legal import legalised
from gnnplace.units.units import expand, units, work_ns


def longest_first(problem: gp.Problem) -> gp.Placement:
    """Longest processing time first (Graham, 1969): units by their work, each to the accelerator with the least work so far.

    It ignores transfers: the table shows what that costs. A unit that may not stand there goes to its fastest allowed device.
    """
    of_ops = units(problem.graph, "weights")  # sets of ops that stay together
    work, load = work_ns(problem, of_ops), np.zeros(problem.num_devices)
    accelerators, device = problem.cluster.accelerators, np.zeros(of_ops.num_units, dtype=np.int64)
    for unit in np.argsort(-work.min(axis=1), kind="stable"):
        device[unit] = accelerators[np.argmin(load[accelerators] + work[unit, accelerators])]
        load[device[unit]] += work[unit, device[unit]]
    return gp.Placement(expand(of_ops, legalised(problem, of_ops, device)))


def main() -> None:
    longest_first.name = "longest-first"  # type: ignore[attr-defined]
    for row in gp.compare(gp.problem("dlrm", cluster="k40-2"), longest_first, evaluations=50):
        time = "infeasible" if row.step_time_ns is None else f"{row.step_time_ns / 1e6:8.3f} ms"
        print(f"{time}  {row.planner}")


if __name__ == "__main__":
    main()
