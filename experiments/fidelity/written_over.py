"""Which ops of placed TensorFlow steps write over an input, and what `transforms/in_place.py` says of them.

    python -m experiments.fidelity.written_over [WORKLOAD ...]

Of every fourth measured placement five steps are traced: an op that allocated no buffer of its output's size in most of them wrote over
an input. Counted are element-wise ops whose output TensorFlow's statistics know of.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from experiments import results
from experiments.fidelity import figures
from experiments.fidelity.again import check_graph, planned
from experiments.fidelity.measuring import SEED
from experiments.fidelity.run import HERE
from gnnplace.execution.tensorflow.in_place import KINDS, in_place
from gnnplace.execution.tensorflow.placed import PlacedTensorFlowStep
from gnnplace.execution.tensorflow.trace import SMALL_BYTES
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.sources.workload import load

EVERY, WARM_STEPS, TRACED_STEPS = 4, 5, 5
COLUMNS = ("placements", "ops", "over", "wrong", "missed")
HEADER = ["workload", "placements", "ops", "wrote over an input", "said so, and did not", "did, and were not said to"]


def counted(workload: str, found: dict[str, Any]) -> dict[str, int]:
    """How many ops wrote over an input, and where the rule is wrong, over placements."""
    loaded, counts = load(f"experiments.fidelity.tensorflow_workloads:{workload}", SEED), Counter[str]()
    graph = loaded.graph
    check_graph(graph, found)
    first = graph.output_ptr[:-1]
    able = graph.canonical_kind.among(KINDS) & (np.diff(graph.output_ptr) == 1)
    for row in list(found["rows"].values())[::EVERY]:
        plan = planned(row)
        step = loaded.start(plan)
        assert isinstance(step, PlacedTensorFlowStep)
        try:
            step.run(WARM_STEPS)
            over, ran = _written_over(graph, step)
        finally:
            step.close()
        ops = np.flatnonzero(able & ran)
        ops = ops[graph.output_bytes[first[ops]] >= SMALL_BYTES]
        said = in_place(graph, plan.device, plan.order).output_alias[first[ops]] != NONE
        wrote = over[ops]
        counts += Counter(
            placements=1, ops=len(ops), over=int(wrote.sum()), wrong=int((said & ~wrote).sum()), missed=int((wrote & ~said).sum())
        )
    return {name: counts[name] for name in COLUMNS}


def _written_over(graph: ComputationGraph, step: PlacedTensorFlowStep) -> tuple[Bool[np.ndarray, " ops"], Bool[np.ndarray, " ops"]]:
    """Which ops allocated nothing as large as their first output in most of the traced steps; and which ran."""
    none, ran = np.zeros((2, graph.num_ops), dtype=np.int64)
    for _ in range(TRACED_STEPS):
        for op, _, node in step.trace().ran():
            ran[op] += 1
            largest = max((record.alloc_bytes for memory in node.memory for record in memory.allocation_records), default=0)
            none[op] += largest < graph.output_bytes[min(graph.output_ptr[op], len(graph.output_bytes) - 1)]
    return 2 * none > TRACED_STEPS, ran > 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Counts workloads and saves what was found beside the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    chosen = parser.parse_args(arguments)
    measured = results.load(chosen.results / "tensorflow.json")["workloads"]
    path = chosen.results / "tensorflow_written_over.json"
    document = results.load(path) or {"workloads": {}}
    for name in chosen.workloads or (name for name in figures.WORKLOADS["tensorflow"] if name in measured):
        document["workloads"][name] = counted(name, measured[name]) | {"provenance": results.provenance(HERE)}
        results.save(path, document)
    rows = [
        [name, *(f"{each[key]:,}" for key in ("placements", "ops", "over", "wrong", "missed"))]
        for name, each in document["workloads"].items()
    ]
    print(results.markdown_table(HEADER, rows))


if __name__ == "__main__":
    main()
