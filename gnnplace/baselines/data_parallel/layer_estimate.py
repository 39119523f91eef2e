"""An estimate of the step of shares by layer: the loads of devices, with what they wait for, and of links."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.data_parallel.layer_row import RowOfLayers
from gnnplace.baselines.rings import size_of_nodes
from gnnplace.cluster import Cluster
from gnnplace.graph import NONE
from gnnplace.problems import NS_PER_S

LESS = 0.05  # of the mean load: of two steps with the same largest load, that with less work is better


class LayerEstimate:
    """The estimate for one row on one cluster. `ns_per_byte` is that of the link of two devices, 0 without one."""

    def __init__(self, cluster: Cluster, row: RowOfLayers, micro_batches: int) -> None:
        link = cluster.link_index[np.ix_(row.devices, row.devices)]
        each = np.array([*(NS_PER_S / link.bandwidth_bytes_per_s for link in cluster.links), 0.0])
        self.ns_per_byte = each[np.where(link == NONE, -1, link)]
        self._row, self._micro_batches, self._crossing = row, micro_batches, row.crossing_bytes
        self._ring_size = size_of_nodes(cluster, row.devices) or len(row.devices)

    def step_ns(self, candidates: Int64[np.ndarray, "candidates layers devices"]) -> Float[np.ndarray, "2 candidates"]:
        """The largest load of a device, with what it waits for, and of a link: the larger of both, and their sum.

        The first is good where few bytes are sent, the second where many are. A little of the mean loads tells equal
        ones apart.
        """
        load, link = self._row.loads(candidates), self._links(candidates)
        busy, sent = (load + self._waits(candidates, load)).max(axis=1), link.max(axis=(1, 2))
        return np.stack([np.maximum(busy, sent), busy + sent]) + LESS * (load.mean(axis=1) + link.mean(axis=(1, 2)))

    def _links(
        self, candidates: Int64[np.ndarray, "candidates layers devices"]
    ) -> Float[np.ndarray, "candidates devices devices"]:
        """The load of each link: what surpluses of micro-batches send to where some lack, and a ring's sums."""
        row, held = self._row, candidates > 0
        some, rows = ~row.gather, row.gather
        more = candidates[:, row.src[some]] - candidates[:, row.dst[some]]
        out, into = np.maximum(more, 0), np.maximum(-more, 0)
        part = into / np.maximum(into.sum(axis=2, keepdims=True), 1)
        sent = np.einsum("csd,cse,s->cde", out, part, row.sent_bytes[some], optimize=True)
        rows_of, replicas_of = candidates[:, row.src[rows]], held[:, row.dst[rows]]
        sent += np.einsum("csd,cse,s->cde", rows_of, replicas_of, row.sent_bytes[rows], optimize=True)
        self._add_rings(sent, held)
        return sent * self.ns_per_byte

    def _add_rings(
        self, sent: Float[np.ndarray, "candidates devices devices"], held: Bool[np.ndarray, "candidates layers devices"]
    ) -> None:
        """Adds what rings send: to the next device of a node, and to the next node by a link that its devices share."""
        size, summed, here = self._ring_size, self._row.summed_bytes, np.arange(held.shape[2])
        of_node = held.reshape(*held.shape[:2], -1, size).sum(axis=3)
        nodes, holders = (of_node > 0).sum(axis=2, keepdims=True), np.repeat(of_node, size, axis=2)
        inside, across = (2 * np.maximum(each - 1, 0) / np.maximum(each, 1) for each in (holders, nodes))
        next_inside = here // size * size + (here + 1) % size
        sent[:, here, next_inside] += np.einsum("cld,cld,l->cd", held, inside, summed, optimize=True)
        if size < len(here):
            sent[:, here, (here + size) % len(here)] += np.einsum("cld,clx,l->cd", held, across, summed, optimize=True)

    def _waits(
        self, candidates: Int64[np.ndarray, "candidates layers devices"], load: Float[np.ndarray, "candidates devices"]
    ) -> Float[np.ndarray, "candidates devices"]:
        """What a device without the first layers waits for a micro-batch, there and back; one without the last, too,
        unless it has other micro-batches to work on.
        """
        row, count = self._row, len(self._row.names)
        others = np.isin(np.arange(count), row.others)
        held = (candidates > 0) & others[:, None]
        first, end = held.argmax(axis=1), count - held[:, ::-1].argmax(axis=1)
        one = np.einsum("cld,ld->cl", candidates, row.work_ns) * others / self._micro_batches
        before = np.concatenate([np.zeros((len(one), 1)), np.cumsum(one, axis=1)], axis=1)
        sent = self._crossing * self.ns_per_byte.max()
        place = np.arange(len(one))[:, None]
        rest = before[place, count] - before[place, end] + sent[end]
        more = load - np.einsum("cld,ld->cd", held, row.work_ns)  # than one micro-batch
        waits = before[place, first] + sent[first] + np.maximum(rest - more, 0) * (rest > 0)
        return np.where(held.any(axis=1), waits, 0)
