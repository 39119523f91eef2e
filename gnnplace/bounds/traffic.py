"""The traffic bound: the load bound of the least step, with the transfers that a division of micro-batches takes.

The load bound lets each op run on the class of devices that suits it best, say products of matrices on the cards that
multiply fastest, and the rest on cards with as fast a memory. But what one class makes and another reads has to be
sent. As in the channels bound (`channels`), an output leaves a class of devices with at least the fraction of its
producer there minus the fraction of each reader there, and channels have no more time than devices have. For the least
step (`least_step`), the fraction of an op on a class is the mean over micro-batches: of its copy if it is repeated,
and, if it runs once, of the instance that the micro-batch reads or whose update it feeds. Then in every form

- the devices of a class spend at least M times the fraction of a repeated op's time on it, and once that of an op that
  runs once: an instance counts for no more micro-batches than there are.
- what a repeated op makes and repeated ops read leaves the class for each micro-batch: M times the fraction.
- a weight (of what runs once, for repeated ops) leaves it once at least: if any micro-batch reads it elsewhere, so at
  least the mean over micro-batches. Fetches send it more often.
- a gradient leaves it once at least if any micro-batch makes it there and its update is elsewhere: as it is, as a sum,
  or in parts, in a ring. Transfers of different parts are different, so their bytes add up to the gradient's; the
  overheads of transfers do not count, since a ring sends parts of a bucket together.
- rows leave it for each micro-batch, as they are or concatenated.

Each transfer is counted for one root and one of these reasons: of a root from which gradients come, other reads do not
count. It takes at least the time of the smallest output of its root that is read, on the fastest link to another class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.bounds.channels import of_units, proved_ns, unit_times
from gnnplace.bounds.least_step import LeastStep
from gnnplace.bounds.relaxed import NEVER, Relaxed
from gnnplace.graph import NONE
from gnnplace.problems import NS_PER_S, duration_ns
from gnnplace.transformations.repetition import BACKWARD
from gnnplace.units.units import persistent_bytes

LIMIT = {"maxiter": 100_000}  # of the solver: two or three seconds take a tenth of them
RATIOS = 2000  # units that read nothing are added up if the ratios of their times on classes agree up to 1 / RATIOS
MOST_READS = 3000  # if there are more reads, only those of the outputs that take the most time to send count


class Reads(NamedTuple):
    """Roots with the unit that owns each and a unit that reads it. A root is sent `times` times, in parts or whole."""

    root: Int64[np.ndarray, " reads"]
    owner: Int64[np.ndarray, " reads"]
    reader: Int64[np.ndarray, " reads"]
    times: Int64[np.ndarray, " roots"]
    in_parts: Int64[np.ndarray, " roots"]


def traffic_ns(least: LeastStep, relaxed: Relaxed) -> int:
    """The bound in ns; 0 if all devices are of one class, or nothing is read."""
    if relaxed.num_classes == 1:
        return 0
    reads = _reads(least, relaxed)
    roots, place = np.unique(reads.root, return_inverse=True)
    leaving_ns, channels = _leaving(least, relaxed, reads, roots)
    most = np.where(leaving_ns < NEVER, leaving_ns, 0).max(axis=1, initial=0)[place]
    chosen = np.argsort(-most, kind="stable")[:MOST_READS]
    if not len(chosen):
        return 0
    kept, place = np.unique(place[chosen], return_inverse=True)
    times = np.zeros(relaxed.units.num_units)
    times[relaxed.units.unit] = least.times
    time_ns = np.vstack([unit_times(relaxed) * times[:, None], least.adding_ns(relaxed).sum(axis=0)])
    state = np.append(persistent_bytes(relaxed.graph, relaxed.units), 0)
    rows = np.stack([place, reads.owner[chosen], reads.reader[chosen]])
    return proved_ns(of_units(relaxed, time_ns, state, rows, leaving_ns[kept], channels, 0, RATIOS), LIMIT)


def _reads(least: LeastStep, relaxed: Relaxed) -> Reads:
    """What repeated ops read, and the gradients and rows that they make."""
    one, repeated, unit = least.one, least.repeated, relaxed.units.unit.astype(np.int64)
    root = np.append(one.output_root, NONE)[one.edge_data].astype(np.int64)  # `NONE` for a control edge
    owner = np.append(one.output_op, NONE)[root]
    data = np.flatnonzero((one.edge_data != NONE) & repeated[one.edge_dst])
    trains = least.losses[one.edge_data[data]] & one.phase.among(BACKWARD)[one.edge_dst[data]]
    leaves = least.gathered[repeated[owner[least.gathered]]]
    data = data[~trains & ~np.isin(root[data], root[leaves])]
    times, in_parts = (np.zeros(len(one.output_bytes), dtype=np.int64) for _ in range(2))
    times[root[data]] = np.where(repeated[owner[data]], least.micro_batches, 1)
    rows, parts = np.zeros((2, len(times)), dtype=bool)
    rows[root[leaves[least.by_rows[one.edge_dst[leaves]]]]] = True
    parts[root[leaves[~least.by_rows[one.edge_dst[leaves]]]]] = True
    times[rows], times[parts], in_parts[rows | parts] = least.micro_batches, 1, 1
    edges = np.concatenate([data, leaves])
    keys = np.unique(np.stack([root[edges], unit[owner[edges]], unit[one.edge_dst[edges]]]), axis=1)
    roots, owners, readers = keys[:, keys[1] != keys[2]]
    return Reads(roots, owners, readers, times, in_parts)


def _leaving(
    least: LeastStep, relaxed: Relaxed, reads: Reads, roots: Int64[np.ndarray, " roots"]
) -> tuple[Float[np.ndarray, "roots classes"], Float[np.ndarray, " classes"]]:
    """The least time that each root occupies channels to another class, and the number of these channels."""
    one, cluster = least.one, least.problem.cluster
    read = one.edge_data[one.edge_data != NONE]
    size = np.full(len(one.output_bytes), np.iinfo(np.int64).max)
    np.minimum.at(size, one.output_root[read], one.output_bytes[read])
    size, times, in_parts = size[roots], reads.times[roots], reads.in_parts[roots] > 0
    leaving = np.full((len(roots), relaxed.num_classes), float(NEVER))
    channels: list[set[int]] = [set() for _ in range(relaxed.num_classes)]
    class_of = dict(zip(cluster.device_names, relaxed.class_of.tolist(), strict=True))
    for number, link in enumerate(cluster.links):
        here = class_of[link.src]
        if here != class_of[link.dst]:
            channels[here].add(int(cluster.link_channel[number]))
            whole = np.maximum(1, link.overhead_ns + duration_ns(size, link.bandwidth_bytes_per_s))
            parts = size.astype(np.float64) * (NS_PER_S / link.bandwidth_bytes_per_s) * (1 - 1e-9)
            leaving[:, here] = np.minimum(leaving[:, here], times * np.where(in_parts, parts, whole))
    return leaving, np.array([len(each) for each in channels], dtype=np.float64)
