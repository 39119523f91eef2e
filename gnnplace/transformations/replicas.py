"""The step of several replicas, as data parallelism runs it (Li et al., VLDB 2020: DistributedDataParallel).

Each replica has variables, state and an update of its own and works on a share of the micro-batches; gradients are
summed round a ring (docs/execution-model.md#replicas).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gnnplace.choices import CopiesName
from gnnplace.graph import ComputationGraph
from gnnplace.transformations.copying import Copying
from gnnplace.transformations.families import FamilyShares
from gnnplace.transformations.gathering import Gathering


def replicas(
    graph: ComputationGraph,
    shares: Sequence[int],
    copies: CopiesName = "together",
    shared: Collection[str] = (),
    one_home: Sequence[str] = (),
    family_shares: FamilyShares = (),
    ring_size: int = 0,
) -> ComputationGraph:
    """The step in which replica r works on `shares[r]` micro-batches. The graph is a micro-batch, and that of `[1]`.

    What runs once runs once for each replica, as `NAME@r0`, `NAME@r1`, ...; the ops of a bucket of gradients are named
    `bucket0/reduce0@r1`, ...

    Args:
        copies: as of `micro_batches`; "whole": a replica stands on one device, so that a bucket joins any gradients
        shared: the names of inputs that all micro-batches read
        one_home: layers whose variables are not copied, with wildcards: tables, experts
        family_shares: layers, with wildcards, and the micro-batches of each replica in these, 0 where it lacks them
        ring_size: as of `Parallelism`

    Raises ValueError as `micro_batches` does, for no share or one below 1, for copies "fetched", for rings that are too
    large, for a name of no layer (of one home: with a variable), and for a layer of two families.

        >>> from gnnplace.corpus import manifest
        >>> graph = manifest.graph("squeezenet")
        >>> step = replicas(graph, [1, 3])
        >>> step.copies.micro_batches, step.persistent_bytes.sum() == 2 * graph.persistent_bytes.sum()
        (4, True)
        >>> step = replicas(graph, [2, 2], family_shares=(("layers.7", (0, 4)),))  # on the second replica alone
        >>> bool(step.persistent_bytes.sum() < 2 * graph.persistent_bytes.sum())
        True
    """
    for share in shares:
        if isinstance(share, bool) or not isinstance(share, int) or share < 1:
            raise ValueError(f"shares: {share!r} is no number of micro-batches; each replica has at least 1")
    if not shares:
        raise ValueError("shares: there is no replica")
    if copies == "fetched":
        raise ValueError("copies: 'fetched' is for weights with one home, in a step of one replica")
    if list(shares) == [1]:
        return graph
    return Gathering(Copying(graph, shares, copies, shared, one_home, family_shares, ring_size)).step()
