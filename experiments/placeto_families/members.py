"""The members of the generated families: which are trained on, which settings were chosen on, which are only placed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datasets.build.enas import FAMILIES, MEMBERS
from datasets.build_generated import generated
from gnnplace.corpus import store
from gnnplace.costs import roofline
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.sources import graphs as sources

TRAINING, TEST = range(24), range(24, MEMBERS)  # indices; fixed before any policy placed a member
VALIDATION = range(20, 24)  # settings were chosen on these, by policies that were trained on the twenty before
SETS: dict[str, tuple[str, ...]] = {**{family: (family,) for family in FAMILIES}, "mix": FAMILIES}
KEPT = Path(__file__).resolve().parents[2] / "runs" / "generated"  # traced graphs, which take seconds each; delete it to trace again


def names(families: Sequence[str], indices: Sequence[int]) -> list[str]:
    """The graphs of these families with these indices."""
    return [f"enas-{family}-{index:02d}" for family in families for index in indices]


def graph(name: str) -> ComputationGraph:
    """A member, traced when it is asked for first."""
    path = KEPT / f"{name}.arrow"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        store.save(generated(name), path)
    return store.load(path)


def problem_of(name: str, cluster: str) -> Problem:
    """A member on a preset, with roofline costs."""
    return roofline.problem(graph(name), sources.cluster(cluster))
