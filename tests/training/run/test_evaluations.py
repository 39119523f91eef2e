"""Equal budgets: what a run really evaluates is what was counted, and searches spend no more."""

import pytest
from support.graphs import chains

from gnnplace.config import files
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import assemble, evaluations

SMALL = ["--training.placements=2", "--training.warm_start.updates=0"]
POLICIES = {
    "unit-placer": [*SMALL, "--policy.width=8", "--policy.rounds=1", "--policy.hidden=8"],
    "placeto": [*SMALL, "--training.groupings=1"],  # evaluates every step of its episodes
}


class Counting:
    """The simulator, which counts."""

    def __init__(self):
        self.count = 0

    def __call__(self, problem, placements, **how):
        self.count += len(placements)
        return simulate(problem, placements, **how)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_takes_as_many_evaluations_as_were_counted(policy):
    problem, evaluate = chains(2, 3, 2), Counting()
    config, spent = evaluations.within(files.read_settings(policy, None, POLICIES[policy]), problem, 60)
    assemble.train(config, [problem], evaluate=evaluate)
    assert config.training.updates >= 1 and evaluate.count == spent <= 60
    assert spent + config.training.samples * evaluations.of_an_episode(config, problem) > 60


@pytest.mark.parametrize(
    ("policy", "overrides", "budget", "said"),
    [("unit-placer", [], 64, "64 are too few"), ("improver", [], 10**6, "a phase of its own, 'moves'")],
)
def test_a_budget_that_can_not_be_is_refused(policy, overrides, budget, said):
    with pytest.raises(ValueError, match=said):
        evaluations.within(files.read_settings(policy, None, overrides), chains(2, 3, 2), budget)


@pytest.mark.parametrize("budget", [1, 70])
def test_searches_spend_no_more(budget, monkeypatch):
    evaluate = Counting()
    monkeypatch.setattr(evaluations, "simulate", evaluate)
    found = evaluations.searches(chains(2, 3, 2), budget, 0, "critical-path")
    assert set(found) == {"random", "hill-climb"} and evaluate.count <= 2 * max(budget, 2) + 2
