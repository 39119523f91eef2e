"""Proofs that nothing fits: never where something does, and what would help is said."""

import numpy as np
import pytest
from support.by_hand import gpus, link, made, op
from support.every_placement import every_device, feasible
from support.slow import parts
from support.tight_problems import crowded_case, tight_case

from gnnplace.bounds.channels import channels_ns
from gnnplace.bounds.relaxed import relaxed
from gnnplace.bounds.shortage import optimiser_state, shortage
from gnnplace.cluster import Cluster, Device
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import RULES
from gnnplace.simulator.simulator import simulate_devices

GB = 10**9


def three(memory_bytes):
    return gpus(link(0, 1), link(1, 0), link(0, 2), link(2, 0), link(1, 2), link(2, 1), memory_bytes=memory_bytes)


def training(memory_bytes):
    """A variable with two moments, four layers whose activations wait for the backward pass, and an update."""
    state = [op(name, 1, Output(0), persistent_bytes=2 * GB) for name in ("w", "w/m", "w/v")]
    layers = [op(f"layer {i}", 1, 3 * GB // 2, phase="forward") for i in range(4)]
    backward = [op(f"gradient {i}", 1, 10**6, phase="backward_data") for i in (3, 2, 1, 0)]
    edges = [
        (0, 0, 3),
        *((i, 0, i + 1) for i in range(3, 11)),
        (5, 0, 8),
        (4, 0, 9),
        (3, 0, 10),
        *((variable, 0, 11) for variable in range(3)),
    ]
    return made([*state, *layers, *backward, op("update", 1, phase="update")], edges, three(memory_bytes))


def test_nothing_is_said_where_there_is_room():
    assert shortage(training(5 * GB)) is None


def test_all_memories_together_are_too_small_and_what_helps_is_said():
    found = shortage(training(4 * GB - 10**8))
    assert (found.needs_bytes, found.has_bytes) == (12 * GB + 10**6, 12 * GB - 3 * 10**8)
    assert str(found) == (
        "no placement fits: 12.0 GB are held at once (6.0 GB of state and 6.0 GB while 'gradient 3' runs), all devices have 11.7 GB, "
        "301.0 MB too few; it would take 1 more device like gpu:0, or a smaller batch, 5.7 GB beside the state at most, or "
        "an optimiser without state, which saves 4.0 GB, or inference, which needs 5.0 GB"
    )


def test_an_op_that_fits_no_device_is_named():
    found = shortage(made([op("small", 1, 10), op("large", 1, 60, workspace_bytes=50)], [(0, 0, 1)], three(100)))
    assert "op 'large' needs 120 bytes on one device, the largest that allows it has 100 bytes, 20 bytes too few" in str(found)
    assert (found.needs_bytes, found.has_bytes) == (120, 100)


def test_what_only_some_devices_allow_is_counted_apart():
    devices = (Device("cpu:0", "cpu", 1000, 10**12, 10**12), *three(100).devices)
    ops = [op(f"w{i}", 1, persistent_bytes=80, allowed=("gpu",)) for i in range(4)]
    found = shortage(made(ops, [], Cluster("one cpu", devices, ())))
    assert "gpu:0, gpu:1, gpu:2 have" in str(found) and (found.needs_bytes, found.has_bytes) == (320, 300)


def test_the_state_of_an_optimiser_is_what_no_pass_reads():
    assert np.flatnonzero(optimiser_state(training(5 * GB).graph)).tolist() == [1, 2]


@pytest.mark.parametrize("seeds", [range(0, 400, 25), *parts(range(400), 4)], ids=str)
def test_where_it_is_proved_no_placement_fits(seeds):
    proved, none = 0, 0
    for seed in seeds:
        for posed in (tight_case(seed).problem(), crowded_case(seed).problem()):
            rows = every_device(posed)
            fits = any(feasible(posed, simulate_devices(posed, rows, rule)).any() for rule in RULES)
            try:
                found = shortage(posed)
            except ValueError:  # a unit is allowed nowhere
                continue
            assert not (fits and found), (seed, str(found))
            proved, none = proved + (found is not None), none + (not fits)
    assert 0 < proved <= none


def test_eight_of_the_largest_memories_are_room():
    """Their bytes are 2^63, which no 64 bits hold."""
    devices = tuple(Device(f"gpu:{i}", "gpu", 2**60, 1000, 1000) for i in range(8))
    posed = problem(ComputationGraph.from_ops("g", [Op("a", "k", (Output(8),), persistent_bytes=2**40)], []), Cluster("c", devices, ()))
    assert shortage(posed) is None and channels_ns(relaxed(posed, 4)) == 0


def test_devices_without_memory_hold_nothing_and_more_of_them_would_not_help():
    devices = (Device("cpu:0", "cpu", 10, 1000, 1000), *(Device(f"gpu:{i}", "gpu", 0, 1000, 1000) for i in range(2)))
    graph = ComputationGraph.from_ops("g", [Op(f"{i}", "k", (Output(8, is_result=True),)) for i in range(2)], [(0, -1, 1)])
    said = str(shortage(problem(graph, Cluster("c", devices, ()))))
    assert "16 bytes are held at once" in said and "more device" not in said
    silent = ComputationGraph.from_ops("g", [Op("a", "k")], [])
    assert shortage(problem(silent, Cluster("c", devices, ()))) is None
