"""The critical chain, by hand and on random problems."""

import numpy as np
import pytest
from graphs import equal_gpus, op

from gnnplace.costs.roofline import problem
from gnnplace.evaluate.simulator import simulate
from gnnplace.graph import CONTROL, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.transforms.critical_chain import chain_ns

NO_WAIT = [(0, 0, 1)]


def chain_of(times, edges, device, size=100):
    """Transfers of `size` bytes take as many nanoseconds."""
    ops = [op(f"o{i}", time, size) for i, time in enumerate(times)]
    posed = problem(ComputationGraph.from_ops("hand", ops, edges), equal_gpus(2))
    placed = np.array(device, dtype=np.int32)
    (result,) = simulate(posed, [Placement(placed)], timeline=True)
    return result.step_time_ns, chain_ns(posed, placed, result.timeline).tolist()


@pytest.mark.parametrize(
    ("times", "edges", "device", "step_time_ns", "expected"),
    [
        ([10, 20], NO_WAIT, [0, 0], 30, [10, 20]),
        ([10, 20], NO_WAIT, [0, 1], 130, [110, 20]),  # the transfer counts for who sends it
        ([10, 20, 200], NO_WAIT, [0, 1, 1], 220, [0, 20, 200]),  # the device was busy
        ([10, 20, 5], NO_WAIT, [0, 1, 1], 130, [110, 20, 0]),
        ([10, 10, 20], [(0, 0, 2), (1, 0, 2)], [0, 0, 1], 230, [110, 100, 20]),  # the channel was busy
        ([10, 20], [(0, CONTROL, 1)], [0, 1], 31, [11, 20]),
        ([10, 20, 5], [], [0, 1, 0], 20, [0, 20, 0]),
    ],
)
def test_what_the_end_waited_for(times, edges, device, step_time_ns, expected):
    assert chain_of(times, edges, device) == (step_time_ns, expected)


def test_a_transfer_starts_as_its_source_ends_though_another_ends_then():
    """Device 0 sends 10..110; o1 ends at 110 and sends at once, over the same channel."""
    assert chain_of([10, 100, 20], [(0, 0, 1), (0, 0, 2), (1, 0, 2)], [0, 0, 1]) == (230, [10, 200, 20])


@pytest.mark.parametrize("seed", range(8))
def test_it_leads_back_to_the_start(seed):
    generator = np.random.default_rng(seed)
    count = 30
    edges = [(i, 0, j) for i in range(count) for j in range(i + 1, count) if generator.random() < 0.1]
    times = generator.integers(1, 200, count).tolist()
    step_time_ns, chain = chain_of(times, edges, generator.integers(0, 2, count), size=int(generator.integers(1, 150)))
    assert sum(chain) == step_time_ns
    assert min(chain) >= 0
