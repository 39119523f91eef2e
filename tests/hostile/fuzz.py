"""Fuzzing of every reader: `make fuzz MINUTES=10`. What it finds is written to `finds/`, where it is a case from then on.

Each reader is given good files with bytes and values changed. It returns, or raises ValueError or OSError in one bounded line, within a
limit of time; readers of other packages run in a forked process. Anything else is a find, which hypothesis shrinks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gnnplace.config import files
from gnnplace.formats.clusters import read_cluster
from gnnplace.formats.costs import read_costs
from gnnplace.formats.graphs import graph_of, read_graph
from gnnplace.formats.placements import read_placement
from gnnplace.frontends.openvino.read import read_openvino
from gnnplace.frontends.published.msr_fiddle import read_msr_fiddle
from gnnplace.frontends.published.pipedream import read_pipedream
from gnnplace.training.run import zero_shot
from tests.hostile import confined, documents, file_cases, finds, model_cases
from tests.hostile.checkpoint_cases import DOCUMENT, SMALL, written
from tests.hostile.json_cases import PROFILE
from tests.hostile.yaml_cases import START

BLOCK = 100  # examples, before the next reader has its turn
LONGEST = 4100  # characters of a message
Read = Callable[[str], object]
GRAPH = graph_of(documents.GRAPH)
WORDS = [
    "null",
    "true",
    "-1",
    "1e999",
    "NaN",
    "9" * 40,
    '""',
    "[]",
    "{}",
    '"\\ud800"',
    "[[[[",
    "&a [*a]",
    "\x1b[2J",
    "\u202e",
    "$tensor",
    "$items",
    "\n",
    "<!--",
    "&#0;",
]


def readers() -> dict[str, tuple[bytes, Read]]:
    """By kind (the beginning of a find's name): a good file, and what reads it."""
    from gnnplace.formats.clusters import cluster_of

    cluster = cluster_of(documents.CLUSTER)
    found: dict[str, tuple[bytes, Read]] = {
        "graph": (_json(documents.GRAPH), read_graph),
        "cluster": (_json(documents.CLUSTER), read_cluster),
        "placement": (_json(documents.PLACEMENT), lambda path: read_placement(path, GRAPH, cluster)),
        "costs": (_json(documents.COSTS), lambda path: read_costs(path, GRAPH)),
        "profile": (PROFILE.encode(), lambda path: read_pipedream(path, name="p", mode="training")),
        "fiddle": (_json(documents.MSR), lambda path: read_msr_fiddle(path, name="p")),
        "checkpoint": (written(DOCUMENT), zero_shot.planner),
        "YAML": (START.encode(), lambda path: files.read_config(Path(path))),
        "OpenVINO": (model_cases.XML.encode(), read_openvino),
    }
    for kind, package in (("ONNX", "onnx"), ("GraphDef", "tensorflow")):
        if find_spec(package) is not None:
            found[kind] = _of_package(kind)
    return found


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


DOCUMENTS: dict[str, tuple[dict[str, Any], Callable[[Any], bytes]]] = {
    "graph": (documents.GRAPH, _json),
    "cluster": (documents.CLUSTER, _json),
    "placement": (documents.PLACEMENT, _json),
    "costs": (documents.COSTS, _json),
    "fiddle": (documents.MSR, _json),
    "checkpoint": (DOCUMENT, written),
    "YAML": ({"policy": vars(SMALL), "problems": [["dlrm", "k40-2"]], "training": {"optimizer": {"lr": 0.1}}, "seed": 1}, _json),
}


def _of_package(kind: str) -> tuple[bytes, Read]:
    """A reader of another package, called here: its process would start anew for every example. Each call is forked (`confined.calls`)."""
    if kind == "ONNX":
        from gnnplace.frontends.onnx import child

        good = next(case for case in model_cases.cases() if case.kind == kind and case.name == "weights in another file")
        return good.files["net.onnx"], lambda path: confined.call(lambda: child.read(path, {}))
    from gnnplace.frontends.tensorflow import graphdef_child

    text = model_cases.TEXT.format(**model_cases.DEFAULTS).encode()
    return text, lambda path: confined.call(lambda: graphdef_child.read(path, {}, [], "g"))


@st.composite
def changed(draw: st.DrawFn, good: bytes) -> bytes:
    """A good file with some parts cut out, doubled or replaced: by bytes, by words, by other parts of it."""
    data = good
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        part = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(WORDS).map(str.encode),
                st.just(data[end : end + 40]),
                st.integers(-(2**70), 2**70).map(lambda n: str(n).encode()),
            )
        )
        data = data[:start] + part + data[end:]
    return data


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["x", "left", "cpu:0", "gpu", "fork"]),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["x", "name", "$tensor", "$items", "kind"]), part, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def revalued(draw: st.DrawFn, document: dict[str, Any], packed: Callable[[Any], bytes]) -> bytes:
    """A document with some values changed."""
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from([where for where, _ in documents.paths(document) if where]))
        document = documents.changed(document, where, draw(VALUES))
    return packed(document)


def contents(kind: str, good: bytes) -> st.SearchStrategy[bytes]:
    """Files that the reader of a kind is given."""
    if kind in DOCUMENTS:
        return changed(good) | revalued(*DOCUMENTS[kind])
    return changed(good)


def fault(read: Read, path: Path, content: bytes) -> str | None:
    """What is wrong with how a file was read, None where nothing is."""
    path.write_bytes(content)
    started = time.process_time()
    try:
        read(str(path))
    except (ValueError, OSError) as error:
        text = str(error)
        if "\n" in text or len(text) > LONGEST:
            return f"{len(text)} characters in {text.count(chr(10)) + 1} lines: {text[:200]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "takes more than 20 s" if time.process_time() - started > 20 else None


def fuzz(minutes: float, kinds: list[str]) -> dict[str, tuple[int, int]]:
    """Fuzzes the readers in turns; by kind how many files were read, and how many finds there are."""
    chosen = {kind: each for kind, each in readers().items() if not kinds or kind in kinds}
    counts = {kind: [0, 0] for kind in chosen}
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            for kind, (good, read) in chosen.items():
                if time.monotonic() < end and counts[kind][1] < 5:
                    _block(kind, good, read, Path(folder), counts[kind])
    return {kind: (tried, found) for kind, (tried, found) in counts.items()}


def _block(kind: str, good: bytes, read: Read, folder: Path, count: list[int]) -> None:
    ending = Path(file_cases.READERS.get(kind, ("f.json", ()))[0]).suffix
    path = folder / f"f{'.pbtxt' if kind == 'GraphDef' else ending}"
    last: list[tuple[bytes, str]] = []

    @settings(
        max_examples=BLOCK, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink]
    )
    @given(contents(kind, good))
    def attempt(content: bytes) -> None:
        count[0] += 1
        if (said := fault(read, path, content)) is not None:
            last[:] = [(content, said)]
            raise AssertionError(said)

    try:
        attempt()
    except AssertionError:
        content, said = last[0]
        count[1] += 1
        name = finds.FOLDER / f"{kind}-{hashlib.sha256(content).hexdigest()[:12]}{path.suffix}"
        name.write_bytes(content)
        print(f"{name}: {said}", file=sys.stderr, flush=True)


def main() -> int:
    """Fuzzes for some minutes and prints how much was tried; the status is 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=main.__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    chosen = parser.parse_args()
    found = fuzz(chosen.minutes, chosen.kinds)
    print("| reader | files | finds |\n|---|---|---|")
    for kind, (tried, finds_) in found.items():
        print(f"| {kind} | {tried} | {finds_} |")
    return int(any(finds_ for _, finds_ in found.values()))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
