"""Keeps the embeddings of a graph apart, as standardising the paper's columns does."""

from __future__ import annotations

from jaxtyping import Float, Int64
from torch import Tensor

SMALLEST = 1e-6  # below this mean square the rows are equal: a graph of one unit, say


def apart(rows: Float[Tensor, "rows width"], graph: Int64[Tensor, " rows"] | None = None) -> Float[Tensor, "rows width"]:
    """Without what all rows of a graph share, and scaled to a mean square of 1 (PairNorm, Zhao and Akoglu, ICLR 2020).

    What a GNN's embeddings share is several times as large as what parts them. A Grouper that reads them as they are moves all units
    at once, and ends with one group. `graph` is as in `mean_by_graph`.
    """
    centred = rows - mean_by_graph(rows, graph)
    square = mean_by_graph(centred.square().mean(dim=1, keepdim=True), graph)
    return centred / square.clamp(min=SMALLEST).sqrt()


def mean_by_graph(rows: Float[Tensor, "rows width"], graph: Int64[Tensor, " rows"] | None) -> Float[Tensor, "rows width"]:
    """For each row the mean over its graph; `graph` numbers the graphs, `0..graphs-1` with a row at least, and None is one graph."""
    if graph is None:
        return rows.mean(dim=0, keepdim=True).expand_as(rows)
    nodes = graph.bincount()
    sums = rows.new_zeros(len(nodes), rows.shape[1]).index_add(0, graph, rows)
    return (sums / nodes.unsqueeze(1))[graph]
