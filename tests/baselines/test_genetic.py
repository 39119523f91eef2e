"""The genetic algorithm: it finds known optima, keeps to its budget and rules, evolves priorities where asked, and is never worse."""

from dataclasses import replace

import numpy as np
import pytest
from support.by_hand import gpus, link, made
from support.by_hand import op as timed
from support.exhaustive import exhaustive
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines.genetic import ELITE, MUTANTS, POPULATION, Member, _next, genetic
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.searching.random_keys import code
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement, check
from gnnplace.result import Score, score
from gnnplace.simulator.simulator import simulate


def evolved(posed, start, evaluations, seed=0, **options):
    return genetic(posed, simulate, np.random.default_rng(seed), start=start, budget=Budget(evaluations=evaluations), **options)


def single(posed):
    return Placement(np.zeros(posed.num_ops, dtype=np.int32))


def time_of(posed, placement):
    return simulate(posed, [placement])[0].step_time_ns


def test_it_finds_the_optimum_of_layers():
    """Two chains, each a layer; and ops without edges."""
    ops = [op(f"{layer}/{i}", 1000, 100, layer=layer) for layer in "ab" for i in range(8)]
    posed = problem(ComputationGraph.from_ops("layers", ops, [(i, 0, i + 1) for i in range(15) if i != 7]), equal_gpus(2))
    assert time_of(posed, evolved(posed, single(posed), 300)) == 8000
    bag = problem(ComputationGraph.from_ops("bag", [op(f"o{i}", 1000) for i in range(12)], []), equal_gpus(3))
    assert time_of(bag, evolved(bag, single(bag), 600)) == 4000


@pytest.mark.parametrize("schedule", ["critical-path", "given"])
@pytest.mark.parametrize("evaluations", [1, 2, 25, 90])
def test_it_keeps_to_its_budget_and_returns_the_best_that_it_met(evaluations, schedule):
    posed, asked, budget = chains(3, 8, 3), [], Budget(evaluations=evaluations)

    def watched(posed, placements, **options):
        asked.extend(placements)
        return simulate(posed, placements, **options)

    found = genetic(posed, watched, np.random.default_rng(1), start=single(posed), budget=budget, schedule=schedule)
    assert len(asked) == budget.spent == evaluations and {placement.schedule for placement in asked} == {schedule}
    assert min(score(posed, result) for result in simulate(posed, asked)) == score(posed, simulate(posed, [found])[0])


def test_the_same_generator_gives_the_same_placement():
    posed = chains(3, 8, 3)
    first, second, other = (evolved(posed, single(posed), 60, seed, schedule="given") for seed in (5, 5, 6))
    assert np.array_equal(first.device, second.device) and np.array_equal(first.priority, second.priority)
    assert not (np.array_equal(first.device, other.device) and np.array_equal(first.priority, other.priority))


def test_priorities_evolve_where_nothing_may_move():
    """By rank a long op starts before a short one, and makes what arrives soon after wait."""
    times = {"feed": 1, "urgent": 1, "tail": 100, "long": 5, "short": 2}
    kind = {name: "cpu" if name in ("feed", "tail") else "gpu" for name in times}
    ops = [replace(timed(name, 0, 1), allowed=(kind[name],), time_ns={kind[name]: times[name]}) for name in times]
    cluster = gpus(link(0, 1), link(1, 0))
    devices = (cluster.devices[0], replace(cluster.devices[1], kind="cpu"))
    posed = made(ops, [(0, 0, 1), (1, 0, 2)], replace(cluster, devices=devices))
    start = Placement(np.array([1, 0, 1, 0, 0], np.int32))
    assert check(posed, start) is None and time_of(posed, start) == 107
    found = evolved(posed, start, 400, schedule="given")
    assert time_of(posed, found) == 104 and np.array_equal(found.device, start.device)
    assert time_of(posed, evolved(posed, start, 60)) == 107


def test_a_start_of_given_priorities_keeps_them():
    posed = chains(2, 2, 1)
    start = replace(single(posed), schedule="given", priority=np.array([0, 9, 5, 7]))
    assert evolved(posed, start, 1, schedule="given").priority.tolist() == [0, 9, 5, 7]


def test_rules_hold_and_overflow_is_left():
    """Memory for half of the ops on each device; one may stand on one kind alone, two always together."""
    cluster = equal_gpus(2, memory_bytes=60)
    devices = (*cluster.devices, replace(cluster.devices[0], name="cpu:0", kind="cpu"))
    links = tuple(replace(cluster.links[0], src=a.name, dst=b.name) for a in devices for b in devices if a is not b)
    ops = [op(f"o{i}", 100, 1, colocation="pair" if i in (3, 7) else None, persistent_bytes=10) for i in range(10)]
    ops = [replace(each, allowed=("gpu",)) if each.name == "o5" else each for each in ops]
    posed = problem(
        ComputationGraph.from_ops("rules", ops, [(i, 0, i + 1) for i in range(9)]), replace(cluster, devices=devices, links=links)
    )
    start = Placement(np.ones(10, dtype=np.int32))
    assert simulate(posed, [start])[0].infeasible
    found = evolved(posed, start, 500)
    assert check(posed, found) is None and simulate(posed, [found])[0].infeasible is None


@pytest.mark.parametrize("seed", range(3))
def test_it_is_never_worse_than_its_start_and_never_better_than_the_optimum(seed):
    posed = chains(2, 3, 2)
    least = score(posed, simulate(posed, [exhaustive(posed, simulate)])[0])
    found = evolved(posed, single(posed), 30, seed)
    assert least <= score(posed, simulate(posed, [found])[0]) <= score(posed, simulate(posed, [single(posed)])[0])


def test_other_placements_join_the_first_population():
    posed = chains(2, 8, 2)
    halves = Placement(np.repeat([0, 1], 8).astype(np.int32))
    assert np.array_equal(evolved(posed, single(posed), 3, others=[halves]).device, halves.device)


def test_one_op_or_one_device_leaves_nothing_to_move():
    for posed in (problem(chains(2, 2, 1).graph, equal_gpus(1)), problem(ComputationGraph.from_ops("one", [op("a")], []), equal_gpus(2))):
        assert not evolved(posed, single(posed), 5).device.any()


def test_children_inherit_mostly_from_the_elite():
    posed = chains(30, 10, 2)
    genes, placement = code(posed), single(posed)
    population = [Member(np.full((2, genes.num_genes), float(rank < ELITE)), placement, Score(0, 0, rank)) for rank in range(POPULATION)]
    drawn = _next(genes, population, np.random.default_rng(0))
    children = drawn[MUTANTS:]
    assert len(drawn) == POPULATION - ELITE and all(set(np.unique(child)) == {0.0, 1.0} for child in children)
    assert np.mean(children) == pytest.approx(0.7, abs=0.02)
    assert all(0.4 < mutant.mean() < 0.6 and len(np.unique(mutant)) > genes.num_genes for mutant in drawn[:MUTANTS])
