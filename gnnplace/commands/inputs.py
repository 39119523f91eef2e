"""What commands take: GRAPH is a JSON file or a name of the corpus, CLUSTER a JSON file or a preset; and their problem."""

from __future__ import annotations

import argparse

from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.frontends.json_cluster import read_cluster
from gnnplace.frontends.json_graph import read_graph
from gnnplace.graph import ComputationGraph
from gnnplace.problem import Problem


def add_problem_arguments(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """GRAPH and --cluster, which is required unless there is a `preset` to fall to."""
    parser.add_argument("graph", metavar="GRAPH", help="a graph: a JSON file (ends in .json or has a '/'), or a name of the corpus")
    explained = f"a cluster: a JSON file likewise, or a preset{f' ({preset} unless given)' if preset else ' such as k40-2'}"
    parser.add_argument("--cluster", metavar="CLUSTER", required=preset is None, default=preset, help=explained)


def add_planning_arguments(parser: argparse.ArgumentParser) -> None:
    """--schedule, --seed and -q."""
    parser.add_argument("--schedule", choices=("critical-path", "fifo"), default="critical-path", help="critical-path unless given")
    parser.add_argument("--seed", type=int, default=0, help="0 unless given")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")


def graph(text: str) -> ComputationGraph:
    """The graph that GRAPH means."""
    return read_graph(text) if _is_path(text) else manifest.graph(text)


def cluster(text: str) -> Cluster:
    """The cluster that CLUSTER means."""
    return read_cluster(text) if _is_path(text) else clusters.cluster(text)


def problem(arguments: argparse.Namespace) -> Problem:
    """The problem that GRAPH and CLUSTER pose under roofline costs."""
    return roofline.problem(graph(arguments.graph), cluster(arguments.cluster))


def _is_path(text: str) -> bool:
    return text.endswith(".json") or "/" in text
