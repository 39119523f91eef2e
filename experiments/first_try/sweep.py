"""Every input of a source tried, each in a process of its own with limits of time and memory.

    python -m experiments.first_try.sweep SOURCE  # as `python -m experiments.first_try SOURCE` does for each source

The libraries are imported once; each input is tried in a fork of this process.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments import results
from experiments.first_try.cases import Kind, Source
from experiments.first_try.limits import Answer, limited
from experiments.first_try.sources import SOURCES, source
from experiments.first_try.trial import Outcome, tried, warm

FOLDER = Path(__file__).parent / "results"
SECONDS, MEMORY_BYTES = 120.0, 18 * 2**30
SAVED_EVERY = 10
Outcomes = dict[str, list[Any]]  # "name, kind" -> [word, why, seconds, commit]


def path_of(name: str) -> Path:
    """The results of a source."""
    return FOLDER / f"{name}.json"


def one(inputs: Source, name: str, kind: Kind) -> tuple[Outcome, float]:
    """The outcome of an input, and how many seconds it took."""
    answer = limited(lambda ready: list(tried(inputs, name, kind, ready)), SECONDS, MEMORY_BYTES)
    return _outcome(answer), answer.seconds


def sweep(name: str, again: Sequence[str] | None, every: int) -> None:
    """Tries one in `every` inputs of a source, unless they have an outcome of this commit.

    With `again` only those that came to one of these words are tried once more, or all if there are no words.
    """
    inputs, path = source(name), path_of(name)
    warm()
    outcomes: Outcomes = results.load(path).get("outcomes", {})
    provenance = results.provenance(FOLDER)
    todo = [
        (label, input_name, kind)
        for label, input_name, kind in _labels(inputs, every)
        if label not in outcomes or _is_due(outcomes[label], provenance["commit"], again)
    ]
    for number, (label, input_name, kind) in enumerate(todo):
        outcome, seconds = one(inputs, input_name, kind)
        outcomes[label] = [*outcome, round(seconds, 1), provenance["commit"]]
        if outcome.word not in ("placed", "excluded"):
            print(f"{name}: {label}: {outcome.word}: {outcome.why}", flush=True)
        if number % SAVED_EVERY == SAVED_EVERY - 1 or number == len(todo) - 1:
            _save(path, outcomes, provenance)


def _is_due(outcome: Sequence[Any], commit: str, again: Sequence[str] | None) -> bool:
    return outcome[3] != commit if again is None else not again or outcome[0] in again


def _labels(inputs: Source, every: int) -> Iterator[tuple[str, str, Kind]]:
    """One in `every` inputs, in an order that mixes them: what there is of an unfinished sweep is a sample."""
    names = [name for name in inputs.names() if zlib.crc32(name.encode()) % every == 0]
    for name in sorted(names, key=lambda name: zlib.crc32(name[::-1].encode())):
        for kind in inputs.KINDS:
            yield f"{name}, {kind}", name, kind


def _outcome(answer: Answer) -> Outcome:
    if answer.value is not None:
        return Outcome(*answer.value)
    if not answer.ready:
        return Outcome("excluded", f"before it is placed, it {answer.ended}")
    return Outcome("hung" if answer.ended.startswith("takes") else "crashed", answer.ended)


def _save(path: Path, outcomes: Outcomes, provenance: dict[str, Any]) -> None:
    results.save(path, {"provenance": provenance | {"versions": _versions()}, "outcomes": dict(sorted(outcomes.items()))})


def _versions() -> dict[str, str]:
    """The versions of the libraries that this process has imported."""
    wanted = ("torch", "transformers", "torchvision", "timm", "torch_geometric", "onnx", "onnxruntime")
    return {name: sys.modules[name].__version__ for name in wanted if name in sys.modules}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("--every", type=int, default=1, help="one input in so many")
    parser.add_argument("--again", nargs="*", metavar="WORD", help="try only what came to these words once more; without a word: all")
    chosen = parser.parse_args(arguments)
    sweep(chosen.source, chosen.again, chosen.every)


if __name__ == "__main__":
    main()
