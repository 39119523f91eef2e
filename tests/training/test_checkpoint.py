"""Checkpoints: a resumed run equals an uninterrupted one bit for bit; what does not fit is refused in one line."""

import json

import pytest
import torch
from lightning import Callback
from safetensors.torch import load_file, save_file
from support.graphs import chains
from support.learners import TablePolicy, learner, settings, unit_learner
from support.slow import slow

from gnnplace.placement import Placement
from gnnplace.policies.unit_placer import UnitPlacer
from gnnplace.simulator.simulator import simulate
from gnnplace.training.best import BestPlacements
from gnnplace.training.checkpoint import load_checkpoint, restore, restore_policy, save_checkpoint
from gnnplace.training.data import Updates
from gnnplace.training.fit import fit
from gnnplace.training.interrupt import Interrupt


class StopAfter(Callback):
    """Interrupts a run after so many updates, as a signal would."""

    def __init__(self, interrupt, updates):
        self.interrupt, self.updates = interrupt, updates

    def on_train_batch_start(self, trainer, pl_module, *batch):
        if pl_module.updates_done == self.updates - 1:
            self.interrupt._handle(15, None)


def run(make, path, config, stop=None, checkpoint=None):
    taught = make(config)
    with Interrupt() as interrupt:
        callbacks = [] if stop is None else [StopAfter(interrupt, stop)]
        fit(taught, lambda present: save_checkpoint(path, present, {}), checkpoint=checkpoint, interrupt=interrupt, callbacks=callbacks)
        assert (interrupt.received is not None) == (stop is not None)
    return taught


@pytest.mark.parametrize("stop", [2, slow(5)])
@pytest.mark.parametrize("advantage", ["leave-one-out", slow("moving-average")])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stop, advantage):
    config = settings(updates=6, warm_start=3, advantage=advantage, lr=0.01, problems_per_update=2)
    whole = run(unit_learner, tmp_path / "whole", config)
    run(unit_learner, tmp_path / "parts", config, stop=stop)
    checkpoint = load_checkpoint(tmp_path / "parts")
    assert checkpoint.updates_done == stop
    resumed = run(unit_learner, tmp_path / "parts", config, checkpoint=checkpoint)
    assert resumed.updates_done == whole.updates_done == 9
    expected, found = load_file(tmp_path / "whole"), load_file(tmp_path / "parts")
    assert expected.keys() == found.keys() and any(name.startswith("adam.1.exp_avg") for name in found)
    for name, value in expected.items():
        assert value.dtype == found[name].dtype and torch.equal(value, found[name]), name
    times = [[best.step_time_ns for best in taught.best.found] for taught in (whole, resumed)]
    assert times[0] == times[1]


def test_a_restored_policy_has_the_ranges_of_its_training(tmp_path):
    taught = run(unit_learner, tmp_path / "c", settings(updates=1))
    fresh = UnitPlacer(units="ops", width=8, rounds=1, hidden=8)
    assert (fresh.encoder.node_range.lowest > fresh.encoder.node_range.highest).all()
    restore_policy(load_checkpoint(tmp_path / "c"), fresh)
    for name in ("lowest", "highest"):
        kept = getattr(fresh.encoder.node_range, name)
        assert kept.isfinite().all() and torch.equal(kept, getattr(taught.policy.encoder.node_range, name))


def test_an_interrupted_run_stops_after_its_update_and_saves(tmp_path):
    taught = run(lambda config: learner([chains(2, 2, 2)], config), tmp_path / "c", settings(updates=50), stop=4)
    assert taught.updates_done == 4 and load_checkpoint(tmp_path / "c").updates_done == 4


def test_a_finished_run_resumes_to_nothing(tmp_path):
    def make(config):
        return learner([chains(2, 2, 2)], config)

    done = run(make, tmp_path / "c", settings(updates=3))
    again = run(make, tmp_path / "c", settings(updates=3), checkpoint=load_checkpoint(tmp_path / "c"))
    assert torch.equal(done.policy.logits, again.policy.logits) and again.updates_done == 3


def test_every_problem_comes_once_an_epoch_in_an_order_that_only_the_seed_fixes():
    updates = Updates(num_problems=5, per_update=2, seed=4, first=0, last=10)
    seen = [problem for number in range(10) for problem in updates[number][1]]
    assert [sorted(seen[low : low + 5]) for low in range(0, 20, 5)] == [[0, 1, 2, 3, 4]] * 4
    assert seen[:5] != seen[5:10] or seen[5:10] != seen[10:15]
    later = Updates(num_problems=5, per_update=2, seed=4, first=6, last=10)
    assert [later[n] for n in range(len(later))] == [updates[n] for n in range(6, 10)]


@pytest.fixture
def saved(tmp_path):
    run(lambda config: learner([chains(2, 2, 2)], config), tmp_path / "c", settings(updates=1))
    return tmp_path / "c"


def rewrite(path, **changes):
    """The checkpoint with other metadata."""
    checkpoint = load_checkpoint(path)
    document = {"format": "gnnplace.checkpoint", "version": 2, "description": {}, "updates_done": 1, "best": list(checkpoint.best)}
    save_file(dict(checkpoint.tensors), path, {"gnnplace": json.dumps(document | changes)})
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"version": 1}, "version 1 .* is not known; this is version 2"), ({"format": "other"}, "format 'other' is not")],
)
def test_another_version_is_refused(saved, changes, words):
    with pytest.raises(ValueError, match=words):
        load_checkpoint(rewrite(saved, **changes))


def test_another_shape_is_refused_by_name(saved):
    with pytest.raises(ValueError, match=r"weights 'logits' have shape \(4, 2\), the policy's have \(4, 3\)"):
        restore_policy(load_checkpoint(saved), TablePolicy(4, 3))
    with pytest.raises(ValueError, match="have shape None"):
        restore_policy(load_checkpoint(saved), UnitPlacer(width=8))
    with pytest.raises(ValueError, match="of 1 problems, not of 2"):
        restore(load_checkpoint(saved), learner([chains(2, 2, 2)] * 2, settings()))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\x10\x00\x00\x00\x00\x00\x00\x00{"])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(ValueError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "c")
    with pytest.raises(ValueError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "missing")


def test_a_slower_best_does_not_replace_what_an_interrupted_run_wrote():
    written = []
    best = BestPlacements(1, lambda *found: written.append(found), on_disk=(150,))
    of = chains(1, 1, 2, time_ns=200)
    placement = Placement(torch.zeros(1).int().numpy())
    (slow,) = simulate(of, [placement])
    assert best.offer(0, placement, slow, "sample") and best.found[0].step_time_ns == 200 and not written
    (fast,) = simulate(chains(1, 1, 2, time_ns=100), [placement])
    assert best.offer(0, placement, fast, "greedy") and len(written) == 1
