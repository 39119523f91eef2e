"""Bounds of every form of a step of several micro-batches: by hand, and never above a step of any form."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from support.every_form import every_form, fastest, some_forms
from support.random_steps import random_step
from support.slow import parts

import gnnplace as gp
from experiments.random_documents import random_cluster
from gnnplace.bounds.bounds import bound_of_forms, bound_of_forms_name, bounds, lower_bound
from gnnplace.bounds.forms import bounds_of_forms
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.formats.clusters import cluster_of
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.step_forms import reformed
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.transformations.repetition import variables


def machine(kinds, bandwidth=10**9, memory_bytes=10**9, launch_ns=0, **link):
    """A device of each kind that moves a byte in a nanosecond; all are linked."""
    devices = tuple(Device(f"{kind}:{i}", kind, memory_bytes, 10**12, 10**9, launch_ns=launch_ns) for i, kind in enumerate(kinds))
    links = tuple(Link(a.name, b.name, bandwidth, **link) for a in devices for b in devices if a is not b)
    return Cluster("machine", devices, links)


def variable(name, layer=None):
    return Op(name, "variable", (Output(0),), persistent_bytes=16, kernel=False, canonical_kind="variable", layer=layer)


def network(*passes, gradients=1, gradient_bytes=40):
    """A variable, an input, a chain of repeated ops (their times, and the bytes each but the last sends on), its gradients, an update."""
    ops = [variable("w"), Op("x", "input", (Output(1, (1,)),), kernel=False, canonical_kind="input")]
    for place, (times, size) in enumerate(passes):
        outputs = (Output(size, (size,)),) if place < len(passes) - 1 else tuple(Output(gradient_bytes, (10,)) for _ in range(gradients))
        ops.append(Op(f"p{place}", "Op", outputs, time_ns=times, phase="backward_weight"))
    ops.append(Op("u", "Op", (), time_ns={"gpu": 7, "cpu": 7}, phase="update"))
    edges = [(place, 0, place + 1) for place in range(1, len(ops) - 2)] + [(0, 0, 2), (0, 0, len(ops) - 1)]
    return ComputationGraph.from_ops("network", ops, edges + [(len(ops) - 2, k, len(ops) - 1) for k in range(gradients)])


def posed(graph, cluster, number=2, copies="together"):
    return problem(Parallelism(number, copies).of(graph), cluster)


def test_work_of_every_form_by_hand():
    """Two micro-batches of 100 ns, an update of 7, a variable and two inputs of 1 ns, and a sum that moves 3 * 40 bytes."""
    made = posed(network(({"gpu": 100}, 0)), machine(["gpu", "gpu"]))
    assert bounds_of_forms(made)["load"] == (200 + 7 + 3 + 120 + 1) // 2
    assert bounds_of_forms(made)["critical-path"] == 1 + 100 + 7
    assert bounds_of_forms(made)["paths"] == 2 + 100 + 7  # the variable and the input on one device, or one of them sent
    assert bounds_of_forms(made)["windows"] == 2 + (200 + 120) // 2 + 7


def test_a_ring_adds_many_gradients_at_once():
    """Launches of 5,000 ns: 3 sums of each of 40 gradients in one replica, 12 hops in four. So the bound of a form is none of another."""
    graph = network(({"gpu": 1000}, 0), gradients=40)
    made = posed(graph, machine(["gpu"] * 4, 10**12, launch_ns=5000), 4, "free")
    step = fastest(made, Parallelism(4, "whole", replicas=4), 4, 0)
    assert bound_of_forms(made) <= step < lower_bound(made)


def test_fractions_of_micro_batches_are_sent():
    """The CPU is the faster one on the first op, the GPU on the second. Sending what one makes takes longer than both ops anywhere."""
    graph = network(({"gpu": 400, "cpu": 100}, 600), ({"gpu": 100, "cpu": 400}, 0), gradient_bytes=9)
    slow_links, fast_links = (posed(graph, machine(["cpu", "gpu"], bandwidth), 8) for bandwidth in (10**9, 10**12))
    assert 800 <= bounds_of_forms(fast_links)["load"] == bounds_of_forms(slow_links)["load"] <= 920
    assert bounds_of_forms(fast_links)["traffic"] <= 920
    # With a share s of each op where it suits, devices take 100 s + 400 (1 - s), the channel 600 (2 s - 1): 200 for s = 2/3
    assert bound_of_forms_name(slow_links) == "traffic" and 1600 <= bound_of_forms(slow_links) <= 1720


def test_every_form_of_a_step_has_the_same_bounds():
    given = posed(network(({"gpu": 90, "cpu": 100}, 30), ({"gpu": 20, "cpu": 100}, 0)), machine(["cpu", "gpu"]), 3)
    for form in every_form(3):
        other = reformed(given, form.of(given.graph.original))
        assert bounds_of_forms(other) == bounds_of_forms(given)
        assert all(bounds(other)[name] >= bound for name, bound in bounds_of_forms(given).items())


def test_bounds_of_every_fusion_are_not_those_of_every_form():
    """A sum that is fused with the op that computes the gradient moves fewer bytes."""
    made = posed(network(({"gpu": 100}, 0)), machine(["gpu", "gpu"]))
    assert lower_bound(made, fusion=True) < bounds_of_forms(made)["load"] <= lower_bound(made)


def test_one_micro_batch_has_one_form():
    made = problem(network(({"gpu": 100}, 0)), machine(["gpu", "gpu"]))
    assert bound_of_forms(made) == gp.lower_bound(made, every_form=True) == lower_bound(made)
    with pytest.raises(ValueError, match=r"^every_form: the bound of every form is one without fusion"):
        gp.lower_bound(made, fusion=True, every_form=True)


def small_network(random):
    """A step of few ops, some of them far faster on one kind, with one or two variables, views, losses, rows and gradients of all sizes."""

    def either():
        return dict(zip(("gpu", "cpu"), random.choice([(5, 60), (60, 5), (20, 30)]), strict=True))

    size = lambda: random.choice([4, 12, 40, 200, 200])  # noqa: E731
    ops, edges = [variable("w", "one"), Op("x", "input", (Output(4, (1,)),), kernel=False, canonical_kind="input", phase="forward")], []
    read, last = 0, 1
    if random.random() < 0.4:
        edges.append((0, 0, len(ops)))
        ops.append(Op("cast", "Op", (Output(size(), (4,)),), time_ns=either()))
        read = len(ops) - 1
    for place in range(random.randint(1, 3)):
        edges += [(last, 0, len(ops)), (read, 0, len(ops))]
        last = len(ops)
        ops.append(Op(f"f{place}", "Op", (Output(size(), (4,)),), time_ns=either(), phase="forward"))
    if random.random() < 0.4:
        edges.append((last, 0, len(ops)))
        ops.append(Op("loss", "Op", (Output(4, (), is_result=True),), time_ns=either(), phase="forward"))
    behind = [len(ops) - 1] + [last] * (last != len(ops) - 1)
    gradient = len(ops)
    edges += [(op, 0, gradient) for op in behind]
    kinds = ["int64", "float32"] if random.random() < 0.2 else ["float32", "float32"]
    outputs = [Output(size(), (4,), kinds[k]) for k in range(random.randint(1, 2))]
    ops.append(Op("g", "Op", tuple(outputs), time_ns=either(), phase="backward_weight"))
    for k in range(random.randint(1, 2)):
        edges += [(0, 0, len(ops))] + [(gradient, j, len(ops)) for j in range(len(outputs)) if j == 0 or random.random() < 0.7]
        ops.append(Op(f"u{k}", "Op", (), time_ns=either(), phase="update", layer="one"))
    return ComputationGraph.from_ops("small", ops, edges)


@pytest.mark.parametrize("seeds", [range(4), *parts(range(4, 400), 16)], ids=str)
def test_never_above_a_step_of_a_small_network(seeds):
    """Steps of two or three micro-batches on two or three devices, in every form; the bound is nearly met on some."""
    met = Counter()
    for seed in seeds:
        random = Random(seed)
        kinds, bandwidth = (
            random.choice([["cpu", "gpu"], ["cpu", "gpu"], ["gpu", "gpu"], ["cpu", "gpu", "gpu"]]),
            random.choice([10**9, 10**9, 10**11]),
        )
        cluster = machine(kinds, bandwidth, overhead_ns=random.choice([0, 0, 9]), latency_ns=random.choice([0, 5]))
        number = random.choice([2, 2, 3])
        made = posed(small_network(random), cluster, number)
        steps = [step for form in every_form(number, layers=("one",)) if (step := fastest(made, form, 24, seed)) is not None]
        assert all(bound <= min(steps) for bound in bounds_of_forms(made).values()), (seed, min(steps), bounds_of_forms(made))
        met["near"] += bound_of_forms(made) >= 0.75 * min(steps)
        met["sent"] += bounds_of_forms(made).get("traffic", 0) > 1.01 * bounds_of_forms(made)["load"]
    assert min(met["near"], met["sent"]) >= len(seeds) // 16, met


@pytest.mark.parametrize("seeds", [range(12), *parts(range(12, 800), 16)], ids=str)
def test_never_above_a_step_of_a_random_graph(seeds):
    """Graphs with everything that micro-batches treat by rules of their own, on random machines, in some forms."""
    looked_at = 0
    for seed in seeds:
        random, graph = Random(f"forms {seed}"), random_step(seed)
        cluster = random_cluster(random)
        for device in cluster["devices"]:
            device["memory_bytes"] = random.choice([device["memory_bytes"], 10**9])
        inputs = [graph.op_names[op] for op in np.flatnonzero(graph.canonical_kind.among(["input"]) & (np.diff(graph.in_ptr) == 0))]
        shared = tuple(random.sample(inputs, random.randint(0, len(inputs)))) if random.random() < 0.3 else ()
        layers = sorted({graph.layer[op] or "" for op in np.flatnonzero(variables(graph)).tolist()} - {""})
        number = random.choice([2, 2, 3, 4])
        try:
            made = problem(Parallelism(number, shared=shared).of(graph), cluster_of(cluster))
        except ValueError:
            continue
        for place, form in enumerate(some_forms(random, number, shared, layers, 3)):
            step = fastest(made, form, 16, 10 * seed + place)
            assert step is None or all(bound <= step for bound in bounds_of_forms(made).values()), (seed, form, step, bounds_of_forms(made))
            looked_at += step is not None
    assert looked_at >= len(seeds) // 2
