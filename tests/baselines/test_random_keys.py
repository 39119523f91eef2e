"""Random keys: what they decode to by hand, that few of random ones do anything, and that any placement of units can be written in them."""

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines.searching.random_keys import ACTIVE, REACH, UnitPlan, code, decoded, encoded, placements
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.schedules.ranks import rank_ns


def layered():
    """Two layers of three ops; the last op may stand on no CPU, of which there is one."""
    ops = [op(f"{layer}/{i}", 10 + i, 5, layer=layer) for layer in "ab" for i in range(3)]
    return problem(ComputationGraph.from_ops("layers", ops, [(i, 0, i + 1) for i in range(5)]), equal_gpus(3))


def home(genes):
    return UnitPlan(np.zeros(genes.closure.num_units, np.int32), np.zeros(genes.closure.num_units))


def gene_of(genes, units):
    """The first gene whose block are these units."""
    blocks = [sorted(genes.member[low:high].tolist()) for low, high in zip(genes.ptr[:-1], genes.ptr[1:], strict=True)]
    return blocks.index(sorted(units))


def test_keys_decode_by_hand():
    genes = code(layered())
    keys = np.zeros((2, genes.num_genes))
    assert not decoded(genes, home(genes), keys).device.any()
    whole, part = gene_of(genes, [0, 1, 2]), gene_of(genes, [1])
    assert whole < part  # large blocks first: a part overrules
    span = 1 - genes.stay
    keys[0, whole], keys[0, part] = genes.stay[whole] + span[whole] * 0.9, genes.stay[part] + span[part] * 0.5
    keys[1, whole] = genes.stay[whole] + span[whole] * 0.75
    plan = decoded(genes, home(genes), keys)
    assert plan.device.tolist() == [2, 1, 2, 0, 0, 0] and plan.offset == pytest.approx([REACH / 2] * 3 + [0] * 3)


def test_where_a_unit_may_not_go_it_stays():
    genes = code(layered())
    barred = genes._replace(legal=np.array([[True, True, i != 1] for i in range(6)]))
    keys = np.zeros((2, genes.num_genes))
    keys[0, gene_of(genes, [0, 1, 2])] = 0.999
    assert decoded(barred, home(genes), keys).device.tolist() == [2, 0, 2, 0, 0, 0]


def test_a_random_chromosome_is_a_few_moves():
    genes = code(chains(40, 10, 4))
    generator = np.random.default_rng(0)
    active = np.mean([(generator.random((2, genes.num_genes)) >= genes.stay).sum(axis=1) for _ in range(300)], axis=0)
    assert active == pytest.approx([ACTIVE, ACTIVE], rel=0.15)


@pytest.mark.parametrize("seed", range(20))
def test_any_placement_of_units_can_be_written_in_keys(seed):
    genes = code(layered())
    generator = np.random.default_rng(seed)
    begin = home(genes)._replace(device=generator.integers(3, size=6).astype(np.int32))
    wanted = generator.integers(3, size=6).astype(np.int32)
    keys = encoded(genes, begin, wanted)
    assert decoded(genes, begin, keys).device.tolist() == wanted.tolist() and not decoded(genes, begin, keys).offset.any()
    assert (keys[0] >= genes.stay).sum() <= (begin.device != wanted).sum()


def test_a_layer_is_written_as_one_key():
    genes = code(layered())
    keys = encoded(genes, home(genes), np.array([1, 1, 1, 0, 0, 0], np.int32))
    assert np.flatnonzero(keys[0] >= genes.stay).tolist() == [gene_of(genes, [0, 1, 2])]


def test_priorities_are_ranks_and_what_is_added():
    posed = layered()
    genes = code(posed)
    plan = home(genes)._replace(offset=np.array([0, 0, 0.5, 0, 0, -0.25]))
    rank = rank_ns(posed, np.zeros(6, np.int32))
    (given,) = placements(posed, genes, [plan], "given")
    assert (given.priority - rank).tolist() == [0, 0, rank.max() // 2 + rank.max() % 2, 0, 0, round(-0.25 * rank.max())]
    (plain,) = placements(posed, genes, [plan], "fifo")
    assert plain.schedule == "fifo" and plain.priority is None
