"""Steps of micro-batches of the corpus's networks obey the order that their updates, sums and running state need."""

from __future__ import annotations

import doctest
import sys

import numpy as np
import pytest
from support.plain_parallelism import plain_step
from support.slow import slow, thorough
from support.step_differences import step_differences

from gnnplace.corpus import manifest
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.repetition import variables

ENTRIES = sorted((entry.ops, entry.name) for entry in manifest.entries() if entry.ops <= 450)
NAMES = [name if ops < 100 or name == "dlrm" else slow(name) if ops < 300 else thorough(name) for ops, name in ENTRIES]


def test_the_example_of_the_docstring_runs() -> None:
    found = doctest.testmod(sys.modules[micro_batches.__module__])
    assert found.attempted and not found.failed


def variable_of(graph: ComputationGraph) -> np.ndarray:
    """For each edge, the variable that it shows, or NONE."""
    root = np.append(graph.output_op[graph.output_root], NONE)[graph.edge_data]
    state = np.append((graph.persistent_bytes > 0) & (np.diff(graph.in_ptr) == 0), False)
    return np.where(state[root], root, NONE)


def writes(graph: ComputationGraph) -> list[tuple[int, int]]:
    """The ops that write a variable in place, each with its variable."""
    aliased = {int(graph.output_op[k]) for k in np.flatnonzero(graph.output_alias != NONE)}
    silent = set(np.flatnonzero(graph.phase.among(["update"]) & (np.diff(graph.output_ptr) == 0)).tolist())
    owner = np.append(graph.output_op[graph.output_root], NONE)
    found = set()
    for edge, variable in enumerate(variable_of(graph).tolist()):
        op = int(graph.edge_dst[edge])
        outputs = owner[graph.output_ptr[op] : graph.output_ptr[op + 1]]
        if variable == NONE:
            continue
        group = graph.colocation.index
        beside = graph.kind[variable] == "buffer" and group[op] == group[variable] != NONE  # as a batch normalization is
        if op in silent or (graph.kernel[op] and (beside or (op in aliased and variable in outputs))):
            found.add((op, variable))
    return sorted(found)


def behind(graph: ComputationGraph, ops: np.ndarray) -> np.ndarray:
    """`[i, j]` is True if op j is ops[i] or comes after it."""
    reached = np.zeros((graph.num_ops, len(ops)), dtype=bool)
    reached[ops, np.arange(len(ops))] = True
    for op in graph.order.tolist():
        sources = graph.edge_src[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]
        reached[op] |= reached[sources].any(axis=0)
    return reached.T


@pytest.mark.parametrize("form", ["together", "fetched", "replicas", "home"])
@pytest.mark.parametrize("name", NAMES)
def test_the_plain_implementation_builds_the_same(name: str, form: str) -> None:
    """Updates of such steps, with one home or on each replica, come after all reads, too."""
    graph = manifest.graph(name)
    layers = sorted({graph.layer[op] or "" for op in np.flatnonzero(variables(graph)).tolist()} - {""})
    asked = {
        "replicas": Parallelism(3, replicas=2),
        "home": Parallelism(3, "whole", replicas=3, one_home=tuple(layers[::3])),
    }.get(form) or Parallelism(3, form)
    step = asked.of(graph)
    assert not step_differences(step, plain_step(graph, asked))
    updates_follow_reads(graph, step)


@pytest.mark.parametrize("name", NAMES)
def test_an_update_comes_after_all_reads_and_micro_batches_meet_in_sums_alone(name: str) -> None:
    graph, number = manifest.graph(name), 3
    step = micro_batches(graph, number)
    copies = step.copies
    assert copies is not None
    updates_follow_reads(graph, step)

    here, there = copies.micro_batch[step.edge_src], copies.micro_batch[step.edge_dst]
    across = np.flatnonzero((here != there) & (here != NONE) & (there != NONE))
    writers = {op for op, _ in writes(graph)}
    for edge in across.tolist():
        src, dst = int(step.edge_src[edge]), int(step.edge_dst[edge])
        running = step.edge_output[edge] == CONTROL and not writers.isdisjoint(copies.source[[src, dst]].tolist())
        assert copies.added[dst] or running, (step.op_names[src], step.op_names[dst])

    sums = copies.added & step.kind.among(["sum"]) & np.array(["/sum" in op for op in step.op_names])
    later = np.flatnonzero(sums & (copies.micro_batch > 1))
    assert (step.output_alias[step.output_ptr[later]] == step.output_ptr[later - 1]).all()
    assert step.persistent_bytes.sum() == graph.persistent_bytes.sum()


def updates_follow_reads(graph: ComputationGraph, step: ComputationGraph) -> None:
    """Where an op that is copied comes before a write of what it reads, all its copies, on the replica, come before it."""
    copies, variable = step.copies, variable_of(graph)
    assert copies is not None
    repeated = np.isin(np.arange(graph.num_ops), copies.source[~copies.added & (copies.micro_batch != NONE)])
    place = {op: np.flatnonzero((copies.source == op) & ~copies.added) for op in range(graph.num_ops)}
    once = [(op, state) for op, state in writes(graph) if not repeated[op]]
    readers = [np.unique(graph.edge_dst[variable == state]) for _, state in once]
    for (writer, _), ops in zip(once, readers, strict=True):
        ops = ops[repeated[ops]]
        ops = ops[behind(graph, ops)[:, writer]]
        many = np.array([copy for op in ops.tolist() for copy in place[op]], dtype=np.int64)
        after = behind(step, many)
        for copy in place[writer].tolist():
            here = (copies.replica[many] == copies.replica[copy]) | (len(place[writer]) == 1)
            assert after[here, copy].all(), step.op_names[copy]
