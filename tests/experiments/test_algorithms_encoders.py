"""The experiment of algorithms and encoders: every row has as many evaluations, and a table of made-up cells."""

import pytest
from support.slow import slow

from experiments.algorithms_encoders.run import ALGORITHMS, ENCODERS, FEWER, MORE, PLANNER, POLICIES, jobs, table

PPO = "ppo, ratio of a sample"
OTHERS = [name for name in ALGORITHMS if name not in (*POLICIES, PPO)]  # differ from these in knobs that have nothing to do with counts


@pytest.mark.parametrize("number", [FEWER, slow(MORE)])
@pytest.mark.parametrize("name", [*POLICIES, PPO, *map(slow, OTHERS)])
def test_all_have_as_many_evaluations_of_their_own_samples(name, number):
    variant = (POLICIES | ALGORITHMS)[name]
    for encoder in ENCODERS:
        chosen = variant.config(encoder, number, 7)
        steps = getattr(chosen.policy, "steps", 1)
        assert number <= chosen.training.updates * chosen.training.samples * steps < number + 64 and chosen.seed == 7
        assert chosen.policy.encodes_with == encoder and chosen.training.warm_start.updates == 0


def test_a_table_has_medians_and_ranges_of_every_row():
    found = {
        name: {"sample_ns": (1 + int(name[-1])) * 10**6, "greedy_ns": None if name[-1] == "2" else 10**7, "seconds": 3.2}
        for name in jobs(3)
        if name != "controls"
    }
    found["controls"] = {"heuristics": {"gpu": 9 * 10**6, "heft": 8 * 10**6, "scotch": None}, "bound_ns": 4 * 10**6}
    text = table(found)
    assert text.startswith("Best heuristic: 8.0 ms (heft); bound 4.0 ms.")
    assert text.count("2.0 [1.0 - 3.0] | infeasible in 1 of 3 | 3 |") == 2 * (2 * len(ALGORITHMS) + len(POLICIES))
    assert text.count("| reinforce | paper |") == 2 and text.count(f"| {PLANNER} | gnn |") == 1
