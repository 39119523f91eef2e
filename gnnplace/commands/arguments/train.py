"""The arguments of `gnnplace train`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser

PURPOSE = "Trains a policy; ends with a table of its own placement, the baselines and the bound, a placement file and a checkpoint."
MACHINE = tuple(
    f"--{knob}" for knob in (*(f"trainer.{flag}" for flag in ("accelerator", "devices", "num_nodes", "strategy", "max_time")), "tracking")
)  # what a resumed run may change
KNOBS = "Every knob of the configuration is an option too, as --training.updates 10; --print_config shows them all; --knobs explains them."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments; `overrides` are those that stand for knobs."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when PyTorch is imported: warnings of several processes, each in each
    chosen, overrides = _parser().parse_known_args(arguments)
    return argparse.Namespace(**vars(chosen), overrides=overrides)


def _parser() -> Parser:
    parser = Parser("train", PURPOSE)
    parser.epilog = KNOBS
    explained = "which policy: hierarchical unless given; --knobs explains each. Several, or FILE.yaml, are compared in the end"
    parser.add_argument("--policy", metavar="NAME,...", type=_policies, default=(), help=explained)
    parser.add_argument("--encoder", metavar="NAME", help="what embeds ops and groups: paper or gnn, for policies that have a choice")
    parser.add_argument("--algorithm", metavar="NAME", help="how it learns: reinforce or ppo; as the settings say unless given")
    parser.add_argument("--settings", metavar="NAME", help="tuned unless given, or published: the policy's paper and nothing else")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--config", type=Path, metavar="YAML", help="a complete configuration of your own")
    start.add_argument("--resume", type=Path, metavar="RUN_FOLDER", help="go on with an interrupted run, on other devices if you like")
    parser.add_argument("--seeds", metavar="N,N,...", type=_seeds, default=(), help="one run for each, then the mean and interval over all")
    explained = "updates as N evaluations of one problem allow, so that policies can be compared; searches get as many in the end"
    parser.add_argument("--evaluations", metavar="N", type=shared.positive, help=explained)
    shared.add_dim_argument(parser, "; FILE:batch=8 for one of several files")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    parser.add_argument("--knobs", action="store_true", help="explain every knob and exit")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    return parser


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different names such as hierarchical,go")
    return names


def _seeds(text: str) -> tuple[int, ...]:
    seeds = tuple(shared.seed(part) for part in text.split(",") if part.isdecimal())
    if len(seeds) != text.count(",") + 1 or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different numbers such as 0,1,2")
    return seeds
