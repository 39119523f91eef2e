"""What a user of Lightning expects of a run: checkpoints, metrics that callbacks see, early stopping, limits, validation."""

import dataclasses

import numpy as np
import pytest
from lightning import Callback
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from support.graphs import chains
from support.learners import TablePolicy, learner, settings

from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.checkpoint import SafetensorsIO, policy_of
from gnnplace.training.run.trainer_flags import flags
from gnnplace.training.update.lesson import Exam
from gnnplace.training.update.metrics import geometric_mean

OF = chains(2, 2, 2)


class SameEverywhere(TablePolicy):
    """Places any problem's op number i by row i of its table."""

    def __init__(self):
        super().__init__(6, 2)
        self.logits.data[:, 0] = 0.1

    def reset(self, problem, samples):
        return problem.num_ops, samples

    def step(self, state, choose, feedback):
        ops, samples = state
        device = choose("device", self.logits[:ops].expand(samples, -1, -1))
        return tuple(Placement(row) for row in device.numpy().astype(np.int32)), None

    @staticmethod
    def placement(problem):
        """Its placement before it has learned anything."""
        return Placement(np.zeros(problem.num_ops, np.int32))


def exam(problem, heuristic_ns=400, bound_ns=100):
    return Exam(problem, problem.graph.name, heuristic_ns, bound_ns)


def validated(updates=8, every=2, **knobs):
    return settings(updates=updates, validation_every=every, **knobs)


@pytest.mark.parametrize("algorithm", [ReinforceConfig(), PpoConfig(epochs=2)])
def test_steps_are_counted_and_metrics_reach_callbacks(algorithm):
    trainer = fit(learner([OF], settings(updates=5), algorithm=algorithm))
    assert trainer.global_step == 5 * algorithm.steps
    assert {"gradient_norm", "seconds", "chains-2x2.gpus-2/best_ns", "best_over_one_device"} <= trainer.callback_metrics.keys()


def test_a_model_checkpoint_saves_what_a_run_goes_on_from(tmp_path):
    every = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    whole = learner([OF], settings(updates=6))
    fit(whole, callbacks=[every])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step=2.ckpt", "step=4.ckpt", "step=6.ckpt"]
    again = learner([OF], settings(updates=6))
    assert fit(again, checkpoint=tmp_path / "step=4.ckpt").global_step == 6
    assert again.policy.logits.equal(whole.policy.logits) and policy_of(tmp_path / "step=4.ckpt").updates_done == 4


def test_a_model_checkpoint_keeps_the_best_by_a_metric_of_validation(tmp_path):
    best = ModelCheckpoint(dirpath=tmp_path, filename="best", monitor="val/over_best_heuristic", mode="min", save_top_k=1)
    trainer = fit(learner([OF], validated()), [exam(OF)], callbacks=[best])
    assert best.best_model_score == min(trainer.callback_metrics["val/over_best_heuristic"], best.best_model_score)
    assert SafetensorsIO().load_checkpoint(best.best_model_path)["gnnplace"]["updates_done"] % 2 == 0


def test_validation_places_problems_that_are_never_trained_on():
    other = chains(3, 2, 2)
    taught = learner([OF], validated(updates=2, lr=1e-9), policy=SameEverywhere())
    trainer = fit(taught, [exam(OF, 400, 100), exam(other, 800, 50)])
    times = [simulate(problem, [SameEverywhere.placement(problem)])[0].step_time_ns for problem in (OF, other)]
    found = trainer.callback_metrics
    assert float(found["val/over_best_heuristic"]) == pytest.approx(geometric_mean([times[0] / 400, times[1] / 800]))
    assert float(found["val/over_bound"]) == pytest.approx(geometric_mean([times[0] / 100, times[1] / 50]))
    assert float(found["val/infeasible"]) == 0


def test_placements_that_do_not_fit_are_counted_and_leave_no_time():
    tight = dataclasses.replace(
        OF, cluster=dataclasses.replace(OF.cluster, devices=tuple(dataclasses.replace(d, memory_bytes=1) for d in OF.cluster.devices))
    )
    found = fit(learner([OF], validated(updates=2)), [exam(tight)]).callback_metrics
    assert float(found["val/infeasible"]) == 1 and "val/over_bound" not in found


def test_early_stopping_ends_a_run_that_no_longer_improves():
    stop = EarlyStopping("val/over_best_heuristic", patience=2, mode="min")
    taught = learner([OF], validated(updates=50, lr=1e-9), policy=SameEverywhere())
    fit(taught, [exam(OF)], callbacks=[stop])
    assert taught.updates_done == 6  # the first look and two without improvement


class Slow(Callback):
    """Stops time for the run's timer."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        timer = next(callback for callback in trainer.callbacks if type(callback).__name__ == "Timer")
        timer._offset += 10


@pytest.mark.parametrize("algorithm", [ReinforceConfig(), PpoConfig(epochs=3)])
def test_max_time_ends_a_run_after_a_whole_update_with_its_checkpoint(tmp_path, algorithm):
    taught = learner([OF], settings(updates=500), algorithm=algorithm)
    trainer = fit(taught, trainer={"max_time": "00:00:00:45"}, folder=tmp_path, callbacks=[Slow()])
    assert 0 < taught.updates_done < 10 and trainer.global_step == taught.updates_done * algorithm.steps
    assert policy_of(tmp_path / "checkpoint.safetensors").updates_done == taught.updates_done


def test_max_steps_ends_a_run():
    taught = learner([OF], settings(updates=500))
    fit(taught, trainer={"max_steps": 7})
    assert taught.updates_done == 7


def test_gradients_are_clipped_by_the_trainer():
    seen = []

    class Norm(Callback):
        def on_train_batch_end(self, trainer, pl_module, *rest):
            seen.append(float(pl_module.policy.logits.grad.norm()))

    fit(learner([OF], settings(updates=1)), trainer={"gradient_clip_val": 1e-3}, callbacks=[Norm()])
    assert seen == [pytest.approx(1e-3, rel=1e-3)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acelerator": "cpu"}, "trainer: 'acelerator' is no flag of the Trainer; nearest is 'accelerator'"),
        ({"callbacks": []}, "trainer.callbacks: they are objects"),
        ({"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches: training.problems_per_update says"),
    ],
)
def test_flags_are_checked(given, words):
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        flags(given)
