"""Checkpoints: a resumed run equals an uninterrupted one bit for bit; what does not fit is refused in one line."""

import json

import numpy as np
import pytest
import torch
from lightning import Callback
from safetensors.torch import load_file, save_file
from support.graphs import chains
from support.learners import REINFORCE, TablePolicy, learner, settings, unit_learner
from support.slow import slow

from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.placement import Placement
from gnnplace.policies.unit_placer.policy import UnitPlacer, UnitPlacerConfig
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import Interrupt, fit
from gnnplace.training.run.checkpoint import FILE, SafetensorsIO, located, policy_of, restore_policy, save_policy
from gnnplace.training.update.best import BestPlacements


class StopAfter(Callback):
    """Interrupts a run after so many updates, as a signal would."""

    def __init__(self, interrupt, updates):
        self.interrupt, self.updates = interrupt, updates

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch.update == self.updates - 1:
            self.interrupt._handle(15, None)


def run(make, folder, config, stop=None, resume=False, algorithm=REINFORCE):
    taught = make(config, algorithm=algorithm)
    with Interrupt() as interrupt:
        callbacks = [interrupt] if stop is None else [StopAfter(interrupt, stop), interrupt]
        fit(taught, folder=folder, checkpoint=folder / FILE if resume else None, callbacks=callbacks)
        assert (interrupt.received is not None) == (stop is not None)
    return taught


def one(config, algorithm):
    return learner([chains(2, 2, 2)], config, algorithm=algorithm)


@pytest.mark.parametrize("stop", [2, slow(5)])
@pytest.mark.parametrize("baseline", ["leave-one-out", slow("moving-average")])
@pytest.mark.parametrize("algorithm", [ReinforceConfig(decisions="sum"), PpoConfig(epochs=2, minibatches=2)], ids=["reinforce", "ppo"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stop, baseline, algorithm):
    config = settings(updates=6, warm_start=3, baseline=baseline, lr=0.01, problems_per_update=2)
    whole = run(unit_learner, tmp_path / "whole", config, algorithm=algorithm)
    run(unit_learner, tmp_path / "parts", config, stop=stop, algorithm=algorithm)
    assert policy_of(tmp_path / "parts" / FILE).updates_done == stop
    resumed = run(unit_learner, tmp_path / "parts", config, resume=True, algorithm=algorithm)
    assert resumed.updates_done == whole.updates_done == 9
    expected, found = (load_file(tmp_path / name / FILE) for name in ("whole", "parts"))
    assert expected.keys() == found.keys() and any("exp_avg" in name for name in found)
    for name, value in expected.items():
        assert value.dtype == found[name].dtype and torch.equal(value, found[name]), name
    times = [[best.step_time_ns for best in taught.best.by_problem] for taught in (whole, resumed)]
    assert times[0] == times[1]


def test_a_restored_policy_has_the_ranges_of_its_training(tmp_path):
    taught = run(unit_learner, tmp_path, settings(updates=1))
    fresh = UnitPlacer(UnitPlacerConfig(units="ops", width=8, rounds=1, hidden=8))
    assert (fresh.op_encoder.encoder.node_range.lowest > fresh.op_encoder.encoder.node_range.highest).all()
    restore_policy(policy_of(tmp_path / FILE), fresh)
    for name in ("lowest", "highest"):
        kept = getattr(fresh.op_encoder.encoder.node_range, name)
        assert kept.isfinite().all() and torch.equal(kept, getattr(taught.policy.op_encoder.encoder.node_range, name))


def test_a_policy_keeps_the_ranges_of_its_checkpoint_until_something_is_learned(tmp_path):
    run(unit_learner, tmp_path, settings(updates=1))
    later = unit_learner(settings(updates=0))
    restore_policy(policy_of(tmp_path / FILE), later.policy)
    before = later.policy.op_encoder.encoder.node_range.lowest.clone()
    assert before.isfinite().all()
    fit(later)
    assert torch.equal(later.policy.op_encoder.encoder.node_range.lowest, before)


def test_an_interrupted_run_stops_after_its_update_and_saves(tmp_path):
    for name, algorithm in (("reinforce", ReinforceConfig()), ("ppo", PpoConfig(epochs=3))):
        taught = run(one, tmp_path / name, settings(updates=50), stop=4, algorithm=algorithm)
        assert taught.updates_done == 4 and policy_of(tmp_path / name / FILE).updates_done == 4


def test_a_finished_run_resumes_to_nothing(tmp_path):
    done = run(one, tmp_path, settings(updates=3))
    again = run(one, tmp_path, settings(updates=3), resume=True)
    assert torch.equal(done.policy.logits, again.policy.logits) and again.updates_done == 3


@pytest.fixture
def saved(tmp_path):
    run(one, tmp_path, settings(updates=1))
    return tmp_path / FILE


def rewrite(path, **changes):
    """The checkpoint with other metadata."""
    document = {"format": "gnnplace.checkpoint", "version": 3, "tree": {"gnnplace": {"description": {}, "updates_done": 1}}}
    save_file(load_file(path), path, {"gnnplace": json.dumps(document | changes)})
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 1}, "version 1 .* is not known; this reader knows 2 and 3"),
        ({"format": "other"}, "format 'other' is not"),
        ({"version": 2}, "description: is missing; updates_done: is missing; tree: unknown key"),
        ({"tree": {}}, "tree.gnnplace: is missing"),
        ({"tree": {"gnnplace": {"description": [], "updates_done": -1}}}, r"description: a list: .*; tree\.gnnplace\.updates_done: -1: "),
    ],
)
def test_another_version_is_refused(saved, changes, words):
    with pytest.raises(ValueError, match=words):
        policy_of(rewrite(saved, **changes))


def test_another_shape_is_refused_by_name(saved):
    with pytest.raises(ValueError, match=r"weights 'logits' have shape \(4, 2\), the policy's have \(4, 3\)"):
        restore_policy(policy_of(saved), TablePolicy(4, 3))
    with pytest.raises(ValueError, match="the policy's have None"):
        restore_policy(policy_of(saved), UnitPlacer(UnitPlacerConfig(width=8)))


def test_a_checkpoint_is_plain_data_and_tensors_with_their_keys(tmp_path):
    own = {"description": {}, "updates_done": 0, "best": []}
    io, tree = SafetensorsIO(), {"gnnplace": own, "a": [1, {"b": torch.ones(2)}], "c": {0: torch.zeros(0), "x": None}, "d": True}
    tree["e"] = float("inf")
    io.save_checkpoint(tree, tmp_path / "c")
    again = io.load_checkpoint(tmp_path / "c")
    assert again["a"][1]["b"].equal(torch.ones(2)) and list(again["c"]) == [0, "x"] and again["c"][0].shape == (0,)
    assert (again["a"][0], again["d"], again["e"]) == (1, True, float("inf"))
    with pytest.raises(TypeError, match="checkpoint: f: a Placement is neither plain data nor a tensor"):
        io.save_checkpoint({"f": Placement(torch.zeros(1).int().numpy())}, tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"\x10\x00\x00\x00\x00\x00\x00\x00{"])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(ValueError, match="c: not a checkpoint" if content else "c: 0 bytes; a checkpoint has"):
        policy_of(tmp_path / "c")
    with pytest.raises(ValueError, match="there is no checkpoint"):
        policy_of(tmp_path / "missing")


def test_a_checkpoint_that_comes_with_the_package_has_a_name(tmp_path, monkeypatch):
    shipped = policy_of("improver")
    assert shipped.path.name == "improver.safetensors" and shipped.updates_done > 0
    with pytest.raises(ValueError, match=r"improvr: there is no checkpoint; those that come with gnnplace are .*improver, "):
        policy_of("improvr")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "improver").write_bytes(b"a file of that name comes first")
    assert str(located("improver")) == "improver" and str(located("a/improver")) == "a/improver"


def test_a_policy_alone_is_saved_and_no_run_goes_on_from_it(tmp_path):
    trained = unit_learner(settings(updates=1))
    save_policy(tmp_path / "p", trained.policy, trained.description, 7)
    found = policy_of(tmp_path / "p")
    assert found.updates_done == 7 and found.weights.keys() == trained.policy.state_dict().keys()
    assert all(torch.equal(value, found.weights[name]) for name, value in trained.policy.state_dict().items())
    with pytest.raises(ValueError, match="holds a policy alone, and no run that can go on"):
        SafetensorsIO().load_checkpoint(tmp_path / "p")


def test_a_slower_best_does_not_replace_what_an_interrupted_run_wrote():
    written = []
    best = BestPlacements(1, lambda *found: written.append(found), on_disk=(150,))
    of = chains(1, 1, 2, time_ns=200)
    placement = Placement(torch.zeros(1).int().numpy())
    (slow,) = simulate(of, [placement])
    assert best.offer(0, placement, slow, "sample") and best.by_problem[0].step_time_ns == 200 and not written
    (fast,) = simulate(chains(1, 1, 2, time_ns=100), [placement])
    assert best.offer(0, placement, fast, "greedy") and len(written) == 1


def test_the_best_placement_of_a_checkpoint_has_its_order_and_its_fusion():
    of, best, resumed = chains(1, 2, 2), *(BestPlacements(1, lambda *found: None) for _ in range(2))
    placement = Placement(np.zeros(2, np.int32), "given", np.array([3, 4]), np.array([1, 1], np.int32))
    best.settle(0, placement, *simulate(of, [Placement(placement.device)]))
    resumed.load_state(best.state())
    again = resumed.by_problem[0].placement
    assert (again.priority.tolist(), again.fusion.tolist(), again.schedule) == ([3, 4], [1, 1], "given")
    old = [{name: column for name, column in best.state()[0].items() if name != "fusion"}]
    resumed.load_state(old)
    assert resumed.by_problem[0].placement.fusion is None
