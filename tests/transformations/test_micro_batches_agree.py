"""Steps of micro-batches and replicas agree with a plain implementation and obey rules of their own, on thousands of random graphs."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from math import prod
from random import Random

import numpy as np
import pytest
from support.differences import differences
from support.plain_parallelism import plain_step
from support.random_steps import placed, random_step
from support.slow import parts
from support.step_differences import step_differences

from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.repetition import variables


def asked(seed: int) -> tuple[ComputationGraph, Parallelism]:
    """A random graph and a form of step: shares, also of families, where copies stand, shared inputs, layers with one home, rings."""
    graph, random = random_step(seed), Random(f"asked {seed}")
    sources = np.flatnonzero(graph.canonical_kind.among(["input"]) & (np.diff(graph.in_ptr) == 0))
    inputs = [graph.op_names[op] for op in sources]
    shared = random.sample(inputs, random.randint(0, len(inputs))) if random.random() < 0.3 else []
    shares = tuple(random.randint(1, 2) for _ in range(random.choice([1, 1, 1, 2, 2, 3, 4, 4, 6])))
    if len(shares) == 1:
        return graph, Parallelism(
            random.choice([2, 2, 3, 4]), random.choice(["together", "free", "fetched", "fetched", "anchored", "whole"]), tuple(shared)
        )
    layers = sorted({graph.layer[op] or "" for op in np.flatnonzero(variables(graph)).tolist()} - {""})
    homes = random.sample(layers, random.randint(0, len(layers))) if random.random() < 0.6 else []
    homes += ["o*"] if any(layer.startswith("o") for layer in layers) and random.random() < 0.1 else []
    copies = random.choice(["together", "free", "anchored", "whole"])
    named = {layer for layer in graph.layer.present if not any(fnmatchcase(layer, f"{home}*") for home in homes)}
    layers = random.sample(sorted(named), random.randint(0, len(named))) if random.random() < 0.6 else []
    if random.random() < 0.9:  # else a layer may be of two families
        layers = [layer for layer in layers if layer[:3] not in layers or layer == layer[:3]]
    families = tuple((layer, family_shares(random, shares)) for layer in layers)
    sizes = [size for size in range(2, len(shares)) if len(shares) % size == 0] if random.random() < 0.8 else []
    ring_size = random.choice(sizes or [0])
    return graph, Parallelism(sum(shares), copies, tuple(shared), len(shares), shares, tuple(homes), families, ring_size)


def family_shares(random: Random, shares: tuple[int, ...]) -> tuple[int, ...]:
    """Other shares of as many micro-batches on some of the replicas; rarely the same."""
    if random.random() < 0.1:
        return shares
    having = random.sample(range(len(shares)), random.randint(1, len(shares)))
    drawn = Counter(having + random.choices(having, k=sum(shares) - len(having)))
    return tuple(drawn[replica] for replica in range(len(shares)))


def steps(seeds: range) -> list[tuple[int, ComputationGraph]]:
    """The steps of those seeds that are not refused."""
    found = []
    for seed in seeds:
        try:
            graph, form = asked(seed)
            found.append((seed, form.of(graph)))
        except ValueError:
            continue
    return found


@pytest.mark.parametrize("seeds", [range(30), *parts(range(30, 2500), 8)])
def test_random_graphs(seeds: range) -> None:
    """Both build the same step, or both refuse."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        graph, form = asked(seed)
        try:
            theirs = plain_step(graph, form)
        except ValueError:
            with pytest.raises(ValueError):
                form.of(graph)
            seen["refused"] += 1
            continue
        ours = form.of(graph)
        assert not step_differences(ours, theirs), f"seed {seed}"
        seen.update(_features(ours))
    least = {"refused": 0.05, "sum": 0.2, "sum elsewhere": 0.1, "concat": 0.15, "mean": 0.2, "running": 0.15, "split": 0.1, "scalar": 0.2}
    least |= {"reduce": 0.15, "across": 0.05, "flat": 0.1, "bucket1": 0.03, "fetch": 0.04, "one home": 0.1, "families": 0.1}
    assert all(seen[what] >= share * len(seeds) for what, share in least.items()), seen


def _features(step: ComputationGraph) -> set[str]:
    """What the step has of what micro-batches treat by rules of their own."""
    kinds = {name.split("/")[1].partition("@")[0].rstrip("0123456789") for name in step.op_names if "/" in name}
    first = [op for op, name in enumerate(step.op_names) if "/sum" in name and name.endswith("@1")]
    here, there = _micro_batch(step)[step.edge_src], _micro_batch(step)[step.edge_dst]
    return (
        (kinds & {"sum", "concat", "mean", "reduce", "across", "flat", "fetch"})
        | ({"families"} if step.copies is not None and step.copies.family_shares else set())
        | ({"one home"} if step.copies is not None and step.copies.one_home else set())
        | {name.partition("/")[0] for name in step.op_names if name.startswith("bucket1/")}
        | ({"split"} if "state" in kinds else set())
        | ({"sum elsewhere"} if (step.output_alias[step.output_ptr[first]] == NONE).any() else set())
        | ({"running"} if ((here != there) & (there != NONE) & (here != NONE) & (step.edge_output == CONTROL)).any() else set())
        | ({"scalar"} if ((here != NONE) & (there == NONE) & (step.edge_bytes > 0) & (step.edge_bytes <= 8)).any() else set())
    )


def _micro_batch(step: ComputationGraph) -> np.ndarray:
    assert step.copies is not None
    return step.copies.micro_batch


@pytest.mark.parametrize("seeds", [range(50), *parts(range(50, 1000), 8)])
def test_what_a_step_keeps_and_multiplies(seeds: range) -> None:
    """State is kept in each replica; updates by rows have M times their flops, other copies the op's; a sum has one for each element."""
    for seed, step in steps(seeds):
        copies = step.copies
        assert copies is not None
        graph, number, replicas = copies.original, copies.micro_batches, copies.replicas
        fewer = bool(copies.one_home or copies.family_shares)
        least = graph.persistent_bytes.sum() * (1 if fewer else replicas)
        assert least <= step.persistent_bytes.sum() <= graph.persistent_bytes.sum() * replicas, f"seed {seed}"
        times = np.bincount(copies.source[~copies.added], minlength=graph.num_ops)
        assert set(times.tolist()) <= {replicas, number} | (set(range(1, replicas)) if fewer else set())
        flops = np.bincount(copies.source[~copies.added], step.flops[~copies.added], minlength=graph.num_ops)
        rows = np.unique(step.edge_dst[step.kind.among(["concat"])[step.edge_src]])
        by_rows = np.isin(np.arange(graph.num_ops), copies.source[rows[~copies.added[rows]]])
        once = np.isin(np.arange(graph.num_ops), copies.source[~copies.added & (copies.micro_batch == NONE)])
        ratio = flops / np.maximum(graph.flops * times, 1)
        assert (ratio[by_rows & (graph.flops > 0)] == number).all(), f"seed {seed}"
        assert np.isin(ratio[~by_rows & (graph.flops > 0)], [1, number]).all() and (ratio[~once] <= 1).all(), f"seed {seed}"
        for op in np.flatnonzero(step.kind.among(["sum"]) & copies.added).tolist():
            shape, size = step.shape(int(step.output_ptr[op])), step.output_bytes[step.output_ptr[op]]
            assert step.flops[op] == (size // 4 if shape is None else prod(shape))


@pytest.mark.parametrize("seeds", [range(5), *parts(range(5, 600), 8)])
def test_simulators_agree_on_steps(seeds: range) -> None:
    for seed, step in steps(seeds):
        case = placed(step, seed)
        (result,) = simulate(case.problem(), [case.placement()], timeline=True)
        assert not differences(case, result), f"seed {seed}"


def test_one_micro_batch_is_the_graph() -> None:
    assert all(Parallelism(1, form.copies, form.shared).of(graph) is graph for graph, form in map(asked, range(50)))
