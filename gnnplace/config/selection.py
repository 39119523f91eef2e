"""The knobs that choose problems of the corpus: graphs by split and lineage, on named clusters and on drawn ones."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.corpus.splits import FIXED
from gnnplace.formats import strict_json
from gnnplace.knobs import MOST_OF_A_STEP, at_least, between

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class SelectionConfig:
    """Problems of the corpus.

    Args:
        splits: parts of the corpus's fixed split whose graphs are chosen: "train", "validation", "test"; empty = no graph
        lineages: graphs of these lineages alone; empty = of all
        without: lineages that are left out, such as those of a fold
        clusters: presets, files or texts; every graph is placed on each of them
        drawn_clusters: how many clusters are drawn for each graph besides
        synthetic: how many synthetic graphs are added, with the costs of the chosen graphs' ops, each on a drawn cluster
        most_ops: the largest graph that is chosen; 0 = any
    """

    splits: tuple[str, ...] = ()
    lineages: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    drawn_clusters: int = 0
    synthetic: int = 0
    most_ops: int = 0

    def __post_init__(self) -> None:
        between(0, MOST_OF_A_STEP, "", drawn_clusters=self.drawn_clusters, synthetic=self.synthetic)
        at_least(0, "", most_ops=self.most_ops)
        for split in self.splits:
            if split not in SPLITS:
                raise ValueError(f"splits: {strict_json.unknown('part of the corpus', split, SPLITS)}")
        for lineage in (*self.lineages, *self.without):
            if lineage not in FIXED:
                raise ValueError(f"lineages: {strict_json.unknown('lineage', lineage, tuple(FIXED))}")
        if self.splits and not (self.clusters or self.drawn_clusters or self.synthetic):
            raise ValueError("clusters: none is named or drawn, so there is nothing to place graphs on")
