"""The curve of an experiment holds what each update measured, although Lightning keeps the last value of every metric."""

from dataclasses import replace

from support.graphs import chains
from support.learners import TablePolicy, ignore, learner, settings

from experiments.training import Curve, config_of
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit

OF, OTHER = chains(2, 2, 2), chains(2, 2, 3)


class Either(TablePolicy):
    """One table for problems of two machines: the third device is forbidden to none."""

    def __init__(self):
        super().__init__(OF.num_ops, 3)

    def reset(self, problem, samples):
        return problem, samples

    def step(self, state, choose, feedback):
        problem, samples = state
        device = choose("device", self.logits[:, : problem.num_devices].expand(samples, -1, -1))
        return tuple(Placement(row) for row in device.numpy().astype("int32")), None


def test_each_update_has_the_metrics_of_its_own_problem_and_phase():
    fit(learner([OF, OTHER], settings(updates=6), policy=Either()), callbacks=[curve := Curve()])
    labels = [{name.partition("/")[0] for name in update if "/" in name} for update in curve.updates]
    assert len(labels) == 6 and all(len(of) == 1 for of in labels) and len(set.union(*labels)) == 2
    greedy = [value is not None for value in curve.of("/greedy_ns")]
    assert greedy == [False, True] * 3  # settings say every second update
    assert all(value is not None for value in curve.of("/mean_ns"))


def test_pre_training_has_nats_and_reinforcement_has_samples():
    teacher = Placement((OF.time_ns.argmin(1) * 0).astype("int32"))
    fit(learner([OF], settings(updates=2, warm_start=2), teacher=teacher), callbacks=[curve := Curve()])
    assert [value is not None for value in curve.of("/warm_start_nats")] == [True, True, False, False]
    assert [value is not None for value in curve.of("/mean_ns")] == [False, False, True, True]


def test_times_are_left_out_where_no_sample_is_feasible():
    calls = []

    def evaluate(problem, placements, **asked):
        calls.append(len(placements))
        return tuple(replace(step, infeasible=None if len(calls) == 1 else "no room") for step in simulate(problem, placements))

    quiet = settings(updates=2, greedy_every=100)
    fit(learner([OF], quiet, evaluate=evaluate, write=ignore), callbacks=[curve := Curve()])
    assert [value is not None for value in curve.of("/mean_ns")] == [True, False] and curve.of("/infeasible") == [0.0, 1.0]


def test_a_configuration_is_of_a_policy_its_settings_and_an_encoder():
    assert config_of("unit-placer", "tuned", ("--training.updates=7",)).training.updates == 7
    assert config_of("hierarchical", "published", (), "gnn").policy.encodes_with == "gnn"
