"""The arguments of `gnnplace calibrate`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser

PURPOSE = "Profiles workloads here and writes a cluster whose rates, launches and links say the same: any graph can be simulated on it."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, with a file that can be written."""
    parser = Parser("calibrate", PURPOSE)
    parser.add_argument(
        "workload", metavar="WORKLOAD", nargs="+", help="as `gnnplace measure` takes them; the more kinds of ops, the better"
    )
    parser.add_argument("--cluster", metavar="CLUSTER", help="what to calibrate; this machine's GPUs and a core unless given, or its cores")
    parser.add_argument("--receive", action="store_true", help="cores copy what they receive, too, as TensorFlow's servers do")
    parser.add_argument("-o", "--output", metavar="CLUSTER", type=shared.output, required=True, help="the JSON file to write")
    parser.add_argument("--limit", metavar="SECONDS", type=shared.seconds, default=600.0, help="for each workload; 600 unless given")
    parser.add_argument("--seed", type=shared.seed, default=0, help="of initial values and inputs; 0 unless given")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    chosen = parser.parse_args(arguments)
    if chosen.receive and chosen.cluster:
        parser.error("--receive: the cluster says it itself, by the receive_channel of its links")
    return chosen
