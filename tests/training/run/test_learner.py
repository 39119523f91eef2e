"""The learner through real Lightning: the sign, a known optimum, updates that must change nothing, one call for all samples."""

import dataclasses
import itertools

import lightning
import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.learners import TablePolicy, ignore, learner, settings
from support.slow import slow
from torch import nn

from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.config.training import CreditConfig, GroupingConfig, OptimizerConfig
from gnnplace.costs.roofline import problem as roofline
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.learner import rate
from gnnplace.training.run.trainer_flags import DEFAULTS


def one_op(fast: int):
    """One op on two devices; it lasts 100 ns on device `fast`, 1000 ns on the other."""
    times = {"gpu:0": 1000, "gpu:1": 1000, f"gpu:{fast}": 100}
    only = dataclasses.replace(op("a"), time_ns=times)
    return roofline(ComputationGraph.from_ops("one", [only], []), equal_gpus(2))


@pytest.mark.parametrize("baseline", ["leave-one-out", "moving-average"])
@pytest.mark.parametrize("fast", [0, 1])
def test_one_update_makes_the_faster_placement_more_probable(fast, baseline):
    taught = learner([one_op(fast)], settings(updates=1, baseline=baseline))
    fit(taught)
    probability = torch.softmax(taught.policy.logits, dim=-1)[0]
    assert probability[fast] > 0.5 > probability[1 - fast]


def test_learning_reaches_the_optimum_that_enumeration_finds():
    times = [{"gpu:0": 100 + 900 * (i < 3), "gpu:1": 100 + 900 * (i >= 3)} for i in range(6)]
    ops = [dataclasses.replace(op(f"o{i}", size=10), time_ns=time) for i, time in enumerate(times)]
    of = roofline(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(5)]), equal_gpus(2))
    everything = [Placement(np.array(devices, dtype=np.int32)) for devices in itertools.product(range(2), repeat=6)]
    optimum = min(result.step_time_ns for result in simulate(of, everything))
    taught = learner([of], settings(updates=15, samples=16, lr=0.5))
    fit(taught)
    assert taught.decode(0).feasible_ns == taught.best.by_problem[0].step_time_ns == optimum == 6 * 100 + 10


def test_an_update_without_a_counted_sample_changes_nothing():
    of = chains(2, 2, 2)
    calls = []

    def all_infeasible_after_three(problem, placements, *, timeline=False):
        calls.append(len(placements))
        results = simulate(problem, placements)
        return results if len(calls) <= 3 else tuple(dataclasses.replace(result, infeasible="told so") for result in results)

    config = settings(updates=3, baseline="moving-average", mask_infeasible_after=0)
    config = dataclasses.replace(config, greedy_every=1000)
    counted, more = learner([of], config, evaluate=all_infeasible_after_three), dataclasses.replace(config, updates=6)
    fit(counted)
    weights, average = counted.policy.logits.clone(), counted.moving_average.average[0].clone()
    calls.clear()
    longer = learner([of], more, evaluate=all_infeasible_after_three)
    fit(longer)
    assert calls == [8] * 6  # one call an update, with all its samples
    assert torch.equal(longer.policy.logits, weights) and torch.equal(longer.moving_average.average[0], average)
    adam = longer.optimizers(use_pl_optimizer=False).state[longer.policy.logits]
    assert adam["step"] == 3


def test_infeasible_samples_count_before_the_cut_off():
    of = chains(1, 1, 2)

    def device_1_is_infeasible(problem, placements, *, timeline=False):
        results = simulate(problem, placements)
        pairs = zip(placements, results, strict=True)
        return tuple(dataclasses.replace(r, infeasible="told so") if p.device[0] == 1 else r for p, r in pairs)

    config = dataclasses.replace(
        settings(updates=8, lr=0.3, mask_infeasible_after=8), reward=dataclasses.replace(settings().reward, kind="sqrt")
    )
    taught = learner([of], config, evaluate=device_1_is_infeasible)
    fit(taught)
    assert torch.softmax(taught.policy.logits, dim=-1)[0, 0] > 0.9


@pytest.mark.parametrize("updates", [0, 1])
def test_a_warm_start_imitates_the_teacher_and_reinforcement_has_a_fresh_adam(updates):
    of = chains(2, 2, 2)
    teacher = Placement(np.array([0, 0, 1, 1], dtype=np.int32))
    taught = learner([of], settings(updates=updates, warm_start=40, lr=1e-9), teacher=teacher)
    fit(taught)
    probability = torch.softmax(taught.policy.logits, dim=-1)[torch.arange(4), torch.tensor([0, 0, 1, 1])]
    assert (probability > 0.9).all()
    assert taught.optimizers(use_pl_optimizer=False).state[taught.policy.logits]["step"] == (updates or 40)


def test_the_best_placement_is_written_whenever_it_improves_and_only_then():
    written = []
    taught = learner([chains(3, 4, 3)], settings(updates=16, samples=4), write=lambda *best: written.append(best))
    fit(taught)
    times = [result.step_time_ns for _, _, result, _ in written]
    assert times == sorted(set(times), reverse=True) and len(times) > 1
    problem, placement, result, _ = written[-1]
    again = simulate(taught.lessons[problem].problem, [placement])[0].step_time_ns
    assert again == taught.best.by_problem[0].step_time_ns == result.step_time_ns


def test_metrics_name_the_problem_and_are_consistent():
    taught = learner([chains(2, 3, 2)], settings(updates=2))
    found = {key: float(value) for key, value in fit(taught).callback_metrics.items()}
    metrics = {key.partition("/")[2] or key: value for key, value in found.items()}
    assert metrics["best_ns"] <= metrics["best_sample_ns"] <= metrics["median_ns"] and metrics["infeasible"] == 0
    assert metrics["ops on gpu:0"] + metrics["ops on gpu:1"] == 6
    assert 0 <= metrics["entropy"] <= np.log(2) + 1e-6 and metrics["gradient_norm"] > 0 and metrics["greedy_ns"] >= metrics["best_ns"]
    assert metrics["mean_over_one_device"] == pytest.approx(metrics["mean_ns"] / 10**9)
    assert metrics["reward_mean"] == pytest.approx(-np.log(metrics["mean_ns"] / 10**9), abs=0.1) and metrics["reward_std"] > 0
    assert metrics["entropy of device"] == metrics["entropy"]
    apart = ("seconds", "gradient_norm", "mean_over_one_device", "best_over_one_device")
    assert all(key.startswith("chains-2x3.gpus-2/") for key in found if key not in apart)


def test_two_problems_keep_their_own_averages_and_bests():
    config = dataclasses.replace(settings(updates=10, baseline="moving-average"), problems_per_update=2)
    taught = learner([chains(2, 2, 2), chains(2, 2, 2, time_ns=10**6)], config, write=ignore)
    fit(taught)
    assert taught.best.by_problem[0].step_time_ns * 10 < taught.best.by_problem[1].step_time_ns
    fast, slow = (taught.moving_average.average[problem] for problem in range(2))
    assert fast > slow


def test_self_imitation_makes_the_best_own_placement_more_probable():
    twins = dataclasses.replace(op("a"), time_ns={"gpu": 100}), dataclasses.replace(op("b"), time_ns={"gpu": 100})
    of = roofline(ComputationGraph.from_ops("twins", list(twins), []), equal_gpus(2))
    taught = learner([of], settings(updates=5, lr=0.1), algorithm=ReinforceConfig(decisions="sum", self_imitation=10.0))
    fit(taught)
    assert taught.best.by_problem[0].step_time_ns == 100
    best = torch.from_numpy(taught.best.by_problem[0].placement.device.astype(np.int64))
    probability = torch.softmax(taught.policy.logits, dim=-1).gather(1, best[:, None])
    assert (probability > 0.5).all()


class Watch(lightning.Callback):
    """Notes something after every step of the optimiser."""

    def __init__(self, look):
        self.look, self.seen = look, []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(self.look(trainer, pl_module, batch))


def test_every_phase_has_its_learning_rate_which_decays_linearly():
    config = settings(updates=5, lr=0.2, warm_start=2)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, lr_decay=0.5))
    taught = learner([chains(2, 2, 2)], config, teacher=Placement(np.zeros(4, np.int32)))
    assert [rate(taught.learning, step) for step in range(7)] == pytest.approx([0.1, 0.05, 0.2, 0.175, 0.15, 0.125, 0.1])
    taught_groups = dataclasses.replace(config.grouping, updates=3, lr=0.4, lr_after=0.1)
    grouped = taught.learning._replace(training=dataclasses.replace(config, grouping=taught_groups))
    assert [rate(grouped, step, grouping=True) for step in (0, 3, 5, 9)] == pytest.approx([0.4, 0.01, 0.02, 0.02])
    assert rate(grouped, 9) == pytest.approx(0.1)
    rates = Watch(lambda trainer, module, batch: module.lr_schedulers().get_last_lr()[0])  # of the step to come
    fit(taught, callbacks=[rates])
    assert rates.seen[:6] == pytest.approx([0.05, 0.2, 0.175, 0.15, 0.125, 0.1])


def test_updates_in_which_every_sample_takes_the_same_time_change_nothing():
    def all_the_same(problem, placements, *, timeline=False):
        return tuple(dataclasses.replace(result, step_time_ns=123_456_789) for result in simulate(problem, placements))

    taught = learner([chains(2, 2, 2)], settings(updates=3, samples=24), evaluate=all_the_same)
    taught.policy.logits.data = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    before = taught.policy.logits.detach().clone()
    fit(taught)
    assert torch.equal(taught.policy.logits, before)


def test_a_problem_that_is_drawn_twice_in_an_update_gets_different_samples():
    seen = []

    def note(problem, placements, *, timeline=False):
        seen.append([placement.device.tolist() for placement in placements])
        return simulate(problem, placements)

    config = dataclasses.replace(settings(updates=1, problems_per_update=3), greedy_every=1000)
    fit(learner([chains(2, 4, 2)], config, evaluate=note))
    assert len(seen) == 3 and seen[0] != seen[1] != seen[2] != seen[0]


def test_a_greedy_decode_is_evaluated_once():
    calls = []
    taught = learner(
        [chains(2, 2, 2)], settings(), evaluate=lambda p, placements, **k: calls.append(len(placements)) or simulate(p, placements)
    )
    taught.decode(0)
    assert calls == [1]


def test_two_problems_of_one_name_have_metrics_and_files_of_their_own():
    taught = learner([chains(2, 2, 2), chains(2, 2, 2)], settings(updates=1, problems_per_update=2))
    assert [lesson.label for lesson in taught.lessons] == ["chains-2x2.gpus-2", "chains-2x2.gpus-2-2"]


class Silent(torch.nn.Module):
    """A policy that can't say which choices make a placement."""

    def reset(self, problem, samples):
        raise AssertionError("nothing is to be computed")

    def step(self, state, choose, feedback):
        raise AssertionError("nothing is to be computed")


@pytest.mark.parametrize(
    ("config", "algorithm", "words"),
    [
        (settings(warm_start=3), ReinforceConfig(), r"training\.warm_start\.updates: Silent cannot imitate a placement"),
        (settings(baseline="critic"), PpoConfig(), r"training\.credit\.baseline: 'critic' needs a policy with a critic"),
        (settings(samples=4), PpoConfig(minibatches=5), r"algorithm\.minibatches: 5 parts of 4 samples"),
        (settings(grouping=GroupingConfig(updates=2)), ReinforceConfig(), r"training\.grouping\.updates: Silent has no groups"),
    ],
)
def test_a_policy_that_cannot_imitate_is_refused_before_anything_is_computed(config, algorithm, words):
    with pytest.raises(ValueError, match=words):
        learner([chains(2, 2, 2)], config, algorithm=algorithm, policy=Silent())


@pytest.mark.parametrize("algorithm", [slow(PpoConfig(epochs=3)), PpoConfig(epochs=2, minibatches=2, ratio="sample")])
def test_ppo_reaches_the_optimum_in_fewer_evaluations_than_one_step_an_update(algorithm):
    of = chains(3, 4, 3)
    watch = Watch(lambda trainer, module, batch: (batch.update, batch.turn, batch.last, trainer.global_step))
    taught = learner([of], settings(updates=12, samples=16, lr=0.1), algorithm=algorithm)
    fit(taught, callbacks=[watch])
    assert len(watch.seen) == 12 * algorithm.steps == watch.seen[-1][-1] and taught.updates_done == 12
    plain = learner([of], settings(updates=12, samples=16, lr=0.1))
    fit(plain)
    assert taught.decode(0).step_time_ns <= plain.decode(0).step_time_ns


@pytest.mark.parametrize("algorithm", [ReinforceConfig, PpoConfig])
def test_a_problem_weighs_by_its_decisions_under_sum_alone(algorithm):
    def norm(decisions, length):
        taught = learner([chains(1, length, 2)], settings(updates=1, samples=16), algorithm=algorithm(decisions=decisions))
        return float(
            fit(taught, callbacks=[first := Watch(lambda trainer, *_: trainer.callback_metrics["gradient_norm"])]) and first.seen[0]
        )

    for length in (2, 24):
        assert norm("sum", length) == pytest.approx(length * norm("mean", length), rel=1e-4)


class TwoParts(nn.Module):
    """Groups and places by two networks; only the first is a Grouper's."""

    groupings, learns_groups = 2, True

    def __init__(self):
        super().__init__()
        self.grouper, self.placer = nn.Linear(1, 6), nn.Linear(1, 2)

    def reset(self, problem, samples):
        return problem.num_ops, samples

    def group(self, state, choose):
        return choose("group", self.grouper(torch.ones(1)).view(1, 3, 2).expand(self.groupings, -1, -1))

    def step(self, state, choose, feedback):
        ops, samples = state
        group = self.group(state, choose).repeat_interleave(samples // self.groupings, 0)
        device = choose("device", self.placer(torch.ones(1)).expand(samples, 1, -1))
        return tuple(Placement(row) for row in (group[:, :1] * device).expand(-1, ops).numpy().astype(np.int32)), None

    def grouping_parameters(self):
        return self.grouper.parameters()

    def grouping_target(self, problem):
        return {"group": torch.zeros(1, 3, dtype=torch.long)}


@pytest.mark.parametrize("clip", ["apart", "together"])
def test_gradients_are_clipped_apart_or_together(clip):
    small, config = 1e-6, settings(updates=1, samples=4, groupings=2, optimizer=OptimizerConfig(lr=0.1, clip=clip))
    torch.manual_seed(0)
    taught = learner([one_op(1)], config, policy=TwoParts(), seed=1)

    def norms_of_parts(trainer, module, batch):
        parts = (module.policy.grouper, module.policy.placer)
        return [float(torch.cat([weight.grad.flatten() for weight in part.parameters()]).norm()) for part in parts]

    trainer = fit(taught, callbacks=[clipped := Watch(norms_of_parts)], trainer=DEFAULTS | {"gradient_clip_val": small})
    (norms,) = clipped.seen
    whole = float(np.linalg.norm(norms))
    assert whole == pytest.approx(small if clip == "together" else small * 2**0.5, rel=1e-3)
    before = [float(trainer.callback_metrics[f"gradient_norm of {part}"]) for part in ("grouper", "placer")]
    assert float(trainer.callback_metrics["gradient_norm"]) == pytest.approx(np.linalg.norm(before)) and min(before) > small
    if clip == "together":
        assert norms[0] / norms[1] == pytest.approx(before[0] / before[1], rel=1e-3)


def test_a_policy_of_several_steps_learns_from_what_is_to_come():
    """Two steps; the reward of each is its own placement's: only returns to go give the first step credit for the second's."""
    taught = learner([chains(2, 2, 2)], settings(updates=1, samples=6), policy=TwoSteps())
    fit(taught)
    made = taught._reinforcement.experience[0]
    assert made.credit.returns.shape == (2, 6) and len(made.tape.steps) == 2
    assert torch.equal(made.credit.returns[0], made.reward[1]) and made.reward[0].count_nonzero() == 6


class TwoSteps(TablePolicy):
    """Proposes twice: every op on one device, then every op by the table, with the first result as feedback."""

    feedback, evaluates = "timeline", "every"

    def __init__(self):
        super().__init__(4, 2)

    def step(self, state, choose, feedback):
        if feedback is None:
            device = choose("device", self.logits[:1].expand(state.samples, 1, 2))
            return tuple(Placement(np.full(4, int(row), np.int32)) for row in device), state
        assert all(result.timeline is not None for result in feedback)
        placements, _ = super().step(state, choose, feedback)
        return placements, None


class WithCritic(TablePolicy):
    """The table policy of one op, and one number for what every state is worth."""

    def __init__(self):
        super().__init__(1, 2)
        self.worth = torch.nn.Parameter(torch.full((1,), 14.0))  # log(1 s / 1 us) = 13.8 on the slow device, 16.1 on the fast one

    def value(self, state):
        return self.worth.expand(state.samples)


@pytest.mark.parametrize("fast", [0, slow(1)])
def test_a_critic_learns_what_states_are_worth_and_the_policy_from_it(fast):
    config = settings(updates=15, lr=0.3, credit=CreditConfig(baseline="critic", normalise=False))
    taught = learner([one_op(fast)], config, algorithm=PpoConfig(value=1.0, decisions="sum"), policy=WithCritic())
    fit(taught)
    assert torch.softmax(taught.policy.logits, dim=-1)[0, fast] > 0.9
    assert float(taught.policy.worth.detach()) == pytest.approx(float(taught._reinforcement.experience[0].reward.mean()), abs=0.5)
