"""Every operator and module of PyTorch's own test databases, and networks of views and writes drawn at random, placed and compared.

    python -m experiments.placed_operators.run             # all, an hour or two; what is there is kept
    python -m experiments.placed_operators.run --every 50  # one in fifty
    python -m experiments.placed_operators.run --show      # the table of what there is

Each network is trained for two steps and called twice in eval mode, under random placements of its ops over two CPU devices: losses,
gradients, outputs, buffers and parameters beside those of plain PyTorch.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import torch

from experiments import output, results
from experiments.placed_operators.compositions import compositions
from experiments.placed_operators.equality import outcomes
from experiments.placed_operators.nets import Net, drawn, modules, operators

PATH = Path(__file__).resolve().parent / "results" / "placed_operators.json"
PLACEMENTS, SAMPLES, COMPOSITIONS = 3, 3, 600
LIMIT_S = 900
SAID = ("equal", "rounded", "refused", "drawn", "invalid", "wrong")
Found = dict[str, dict[str, list[str]]]  # "kind: name" -> mode -> [what was said, why]


def nets() -> Iterator[Net]:
    """All of them."""
    yield from operators(SAMPLES)
    yield from modules(SAMPLES)
    yield from islice(compositions(), COMPOSITIONS)


@cache
def _warm() -> None:
    """Has PyTorch import what it traces with, once, before networks are forked."""
    list(outcomes(next(compositions()), 0))


def tried(net: Net, placements: int) -> dict[str, list[str]]:
    """What a network's step and its inference come to, in a process of its own: an operator may crash it, or never end."""
    _warm()
    ends = os.pipe()
    child = os.fork()
    if not child:
        os.close(ends[0])
        _child(net, placements, ends[1])
    os.close(ends[1])
    with os.fdopen(ends[0]) as answers:
        said = answers.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else {mode: ["wrong", f"ended with status {status}"] for mode in ("step", "inference")}


def _child(net: Net, placements: int, answers: int) -> None:
    signal.alarm(LIMIT_S)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    try:
        said = {mode: list(outcome) for mode, outcome in outcomes(net, placements)}
        os.write(answers, json.dumps(said).encode())
    finally:
        sys.stdout.flush()
        os._exit(0)


def run(chosen: Sequence[Net], found: Found) -> Found:
    """Adds what is missing, and saves now and then."""
    for number, net in enumerate(chosen):
        label = f"{net.kind}: {net.name}"
        if label not in found:
            found[label] = tried(net, PLACEMENTS)
            for mode, (said, why) in found[label].items():
                if said == "wrong":
                    print(f"{label}: {mode}: {why}", file=sys.stderr, flush=True)
        if number % 100 == 99:
            _save(found)
    return found


def _save(found: Found) -> None:
    results.save(PATH, {"provenance": results.provenance(PATH.parents[1]), "networks": found})


def table(found: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """How many of each kind came to what; then why, with how many."""
    counts, reasons = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
    for label, modes in found.items():
        for mode, (said, why) in modes.items():
            counts[label.partition(":")[0], mode, said] += 1
            if said == "refused":
                reasons[said, _reason(why)] += 1
    rows = sorted({(kind, mode) for kind, mode, _ in counts})
    lines = [[kind, mode, *(str(counts[kind, mode, said]) for said in SAID)] for kind, mode in rows]
    why = [[reason, str(count)] for (_, reason), count in reasons.most_common()]
    return results.markdown_table(["", "", *SAID], lines) + "\n" + results.markdown_table(["refused, because", "times"], why)


def _reason(why: str) -> str:
    """Without the place."""
    return re.split(r" at [^ ]+:\d+ |; ", why)[0][:120]


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--every", type=int, default=1, help="one network in so many")
    parser.add_argument("--show", action="store_true", help="the table of what there is")
    chosen: argparse.Namespace = parser.parse_args()
    found: Found = results.load(PATH).get("networks", {})
    if not chosen.show:
        run(drawn([*nets()], chosen.every), found)
        _save(found)
    output.show(table(found), found, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
