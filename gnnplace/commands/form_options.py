"""The options of a step of several micro-batches: how many, and its form (replicas, shares, where copies stand)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from gnnplace.choices import CopiesName
from gnnplace.commands.values import count, positive
from gnnplace.complaints import UsageError

if TYPE_CHECKING:
    from gnnplace.transformations.parallelism import Parallelism


class Auto(NamedTuple):
    """Micro-batches whose number is to be chosen, up to a limit."""

    limit: int = 16

    @property
    def numbers(self) -> list[int]:
        """The powers of two up to the limit."""
        return [2**power for power in range(self.limit.bit_length())]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a `Parallelism`. None is given by default, so that a placement may say it."""
    explained = (
        "the micro-batches of a step, whose gradients are summed for one update; in inference, requests in flight. "
        "GRAPH is one of them; 1 unless given; auto or auto:16: place takes the power of two up to there with the "
        "least time for each"
    )
    parser.add_argument("--micro-batches", metavar="M", type=_micro_batches, help=explained)
    explained = (
        "all copies of an op stand on one device (together; best may change it unless it is given); each anywhere, a "
        "weight that is sent there being kept (free) or sent anew for each use (fetched); the same, but what runs once "
        "on a replica on one device (anchored); or all its ops (whole)"
    )
    parser.add_argument("--copies", choices=get_args(CopiesName), help=explained)
    explained = "an input that all micro-batches read; repeatable; scalars are always shared"
    parser.add_argument("--shared-input", metavar="NAME", action="append", help=explained)
    explained = "copies of the variables and their update, whose gradients are summed round a ring; 1 unless given"
    parser.add_argument("--replicas", metavar="R", type=positive, help=explained)
    explained = "the micro-batches of each replica, such as 1,1,3,3; as equal as possible unless given"
    parser.add_argument("--shares", metavar="N,N,...", type=_shares, help=explained)
    explained = "a layer whose variables are not copied, such as 'tables.*'; repeatable"
    parser.add_argument("--one-home", metavar="LAYER", action="append", help=explained)
    explained = (
        "a layer and the micro-batches of each replica there, 0 where it has no copy, 'h.1?=0,0,4,4'; repeatable"
    )
    parser.add_argument("--family-shares", metavar="LAYER=N,N,...", type=_family, action="append", help=explained)
    explained = (
        "how many replicas sum their gradients in a ring (those of a node) before they are summed across rings; all in "
        "one unless given"
    )
    parser.add_argument("--ring-size", metavar="R", type=positive, help=explained)


def given(chosen: argparse.Namespace) -> dict[str, Any]:
    """The fields of a `Parallelism` that the command line gives."""
    fields = {
        "micro_batches": chosen.micro_batches,
        "copies": chosen.copies,
        "shared": chosen.shared_input,
        "replicas": chosen.replicas,
        "shares": chosen.shares,
        "one_home": chosen.one_home,
        "family_shares": chosen.family_shares,
        "ring_size": chosen.ring_size,
    }
    if isinstance(chosen.micro_batches, Auto):
        raise UsageError("--micro-batches auto: place chooses the number, and its placement says it to other commands")
    stated = {name: value for name, value in fields.items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}


def parallelism(chosen: argparse.Namespace, placement: str | None = None) -> Parallelism:
    """The step that --micro-batches and the options beside it say, or the file of a placement.

    Raises UsageError if they differ, ValueError for a placement as `read_placement` does.
    """
    from gnnplace.transformations.parallelism import Parallelism

    stated = given(chosen)
    if placement is None:
        if stated and "micro_batches" not in stated:
            name = next(iter(stated))
            option = "--shared-input" if name == "shared" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option}: a step of one micro-batch has no copies; say --micro-batches, too")
        return Parallelism(**stated)
    from gnnplace.formats.placements import read_about

    placed = read_about(placement).parallelism
    if stated.get("micro_batches") == placed.micro_batches == 1:  # which has no copies
        return placed
    for name, value in stated.items():
        wanted = tuple(sorted(set(value))) if name in ("shared", "one_home", "family_shares") else value
        if wanted != (kept := getattr(placed, name)):
            raise UsageError(
                f"{name}: {wanted!r} is not {kept!r}, that of the step in {placement}; leave it to the file"
            )
    return placed


def may_change(chosen: argparse.Namespace) -> bool:
    """Whether `best` may choose another form: the command line names none."""
    return chosen.copies is None and chosen.replicas is None


def _micro_batches(text: str) -> int | Auto:
    """A number of micro-batches, `auto` or `auto:LIMIT`."""
    name, _, limit = text.partition(":")
    if name == "auto":
        return Auto(positive(limit)) if ":" in text else Auto()
    return positive(text)


def _shares(text: str) -> list[int]:
    """The micro-batches of each replica, separated by commas."""
    return [positive(part) for part in text.split(",")]


def _family(text: str) -> tuple[str, tuple[int, ...]]:
    """A layer, and its micro-batches on each replica."""
    name, equals, shares = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not LAYER=N,N,...")
    return name, tuple(count(part) for part in shares.split(","))
