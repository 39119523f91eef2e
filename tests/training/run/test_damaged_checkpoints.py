"""Checkpoints are input: whatever is damaged in one is refused in one line, before memory is taken for it and before a run is changed."""

import copy
import json
import resource

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support.graphs import chains
from support.learners import REINFORCE, learner, settings
from support.slow import slow

from gnnplace.moves.ranking import Ranking
from gnnplace.policies.improver.policy import ImproverConfig
from gnnplace.policies.protocol import PolicyShape
from gnnplace.policies.tape import Tape
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig
from gnnplace.training.run import zero_shot
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.checkpoint import FILE, SafetensorsIO, policy_of, restore_policy
from gnnplace.training.run.description import of_checkpoint

TREE = ("tree",)
OWN = ("tree", "gnnplace")
LOOP = ("tree", "loops", "fit_loop")
ADAM = ("tree", "optimizer_states", 0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The checkpoint of a run of one problem, and its metadata."""
    folder = tmp_path_factory.mktemp("run")
    fit(learner([chains(2, 2, 2)], settings(updates=2), algorithm=REINFORCE), folder=folder)
    with safe_open(folder / FILE, "pt") as file:
        return folder / FILE, json.loads(file.metadata()["gnnplace"])


def changed(document, where, value):
    """The document with another value at a place; None where the place is to be missing."""
    found = copy.deepcopy(document)
    within = found
    for part in where[:-1]:
        within = within[part]
    if value is MISSING:
        del within[where[-1]]
    else:
        within[where[-1]] = value
    return found


MISSING = object()
DAMAGED = {
    "no state": ((*TREE, "state_dict"), MISSING, r"tree\.state_dict: .* is missing"),
    "a state of numbers": ((*TREE, "state_dict", "policy.logits"), 3, r"policy\.logits: 3: a tensor float32\[4, 2\] is due"),
    "no loops": ((*TREE, "loops"), MISSING, r"tree\.loops: None: a map is due"),
    "loops of nothing": ((*TREE, "loops"), {}, r"tree\.loops: a dict: 'fit_loop' is missing"),
    "progress of text": ((*LOOP, "epoch_progress", "total", "ready"), "1", r"epoch_progress\.total\.ready: '1': a whole number is due"),
    "progress below 0": ((*LOOP, "epoch_loop.batch_progress", "current", "ready"), -1, r"ready: -1: a whole number is due"),
    "callbacks in a list": ((*TREE, "callbacks"), [], r"tree\.callbacks: a list: a map is due"),
    "no optimiser": ((*TREE, "optimizer_states"), [], r"tree\.optimizer_states: a list: a list of 1 is due"),
    "another group": ((*ADAM, "param_groups"), [], r"param_groups: a list: a list of 1 is due"),
    "a rate of text": ((*ADAM, "param_groups", 0, "lr"), "fast", r"param_groups\[0\]\.lr: 'fast': a finite number is due"),
    "an unknown parameter": ((*ADAM, "state"), {"$items": [[9, {}]]}, r"state: 9 is no parameter; there are 1"),
    "no moments": ((*ADAM, "state"), {"$items": [[0, {}]]}, r"state\[0\]: a dict: 'exp_avg' is missing"),
    "items of numbers": ((*ADAM, "state"), {"$items": [1]}, r"state\.\$items: is no list of pairs"),
    "no schedule": ((*TREE, "lr_schedulers", 0, "last_epoch"), MISSING, r"lr_schedulers\[0\]: a dict: 'last_epoch' is missing"),
    "best of nothing": ((*OWN, "best"), None, "holds a policy alone, and no run that can go on"),
    "best of two": ((*OWN, "best"), [None, None], r"tree\.gnnplace\.best: a list: a list of 1 is due, one of each problem"),
    "a best without devices": ((*OWN, "best", 0, "device"), None, r"best\[0\]\.device: is missing"),
    "an unknown schedule": ((*OWN, "best", 0, "schedule"), "x", r"best\[0\]\.schedule: 'x': input should be"),
    "a tensor that is missing": ((*OWN, "best", 0, "device"), {"$tensor": "x"}, r"tree\.gnnplace\.best\[0\]\.device: 'x' is no tensor"),
    "a tensor of a number": ((*TREE, "loops"), {"$tensor": 7}, r"tree\.loops: 7 is no tensor of the file"),
    "no version of Lightning": ((*TREE, "pytorch-lightning_version"), [], r"pytorch-lightning_version'\]: a list: "),
    "an epoch of text": ((*TREE, "epoch"), "1", r"tree\.epoch: '1': "),
}  # fmt: skip


@pytest.mark.parametrize("name", [name if number % 4 == 0 else slow(name) for number, name in enumerate(DAMAGED)])
def test_a_run_does_not_go_on_from_a_damaged_tree(name, kept, tmp_path):
    where, value, words = DAMAGED[name]
    path, document = kept
    save_file(load_file(path), tmp_path / FILE, {"gnnplace": json.dumps(changed(document, where, value))})
    taught = learner([chains(2, 2, 2)], settings(updates=4), algorithm=REINFORCE)
    with pytest.raises(ValueError, match=words) as error:
        fit(taught, folder=tmp_path, checkpoint=tmp_path / FILE)
    assert "\n" not in str(error.value) and taught.updates_done == 0


@pytest.mark.parametrize("value", [torch.full((4, 2), torch.nan), torch.zeros(4, 2, dtype=torch.float64), torch.zeros(2, 4)])
def test_a_run_does_not_go_on_from_damaged_tensors(value, kept, tmp_path):
    path, document = kept
    tensors = load_file(path)
    for name in ("state_dict/policy.logits", "optimizer_states/0/state/0/exp_avg"):
        save_file(tensors | {name: value}, tmp_path / FILE, {"gnnplace": json.dumps(document)})
        with pytest.raises(ValueError, match=r"a tensor float32\[4, 2\] (of finite numbers )?is due"):
            fit(learner([chains(2, 2, 2)], settings(updates=4), algorithm=REINFORCE), folder=tmp_path, checkpoint=tmp_path / FILE)


METADATA = {
    "brackets": ("[" * 100_000, "metadata: document: nested too deeply"),
    "deep": ('{"format":' + "[" * 40 + "]" * 40 + "}", "metadata: document: nested too deeply"),
    "a repeated key": ('{"a": 1, "a": 2}', "metadata: a: 'a': a key may stand once"),
    "a list": ("[1]", "metadata: a list: an object is due"),
    "no JSON": ("{", "metadata: line 1 column 2: not JSON"),
    "a version that is true": ('{"format": "gnnplace.checkpoint", "version": true}', "version True of"),
    "no version": ('{"format": "gnnplace.checkpoint"}', "version None of"),
    "digits": ('{"format": ' + "9" * 5000 + "}", "format: '9+'... an integer has to fit|an integer has to fit"),
}


@pytest.mark.parametrize("name", METADATA)
def test_metadata_is_a_strict_document(name, tmp_path):
    text, words = METADATA[name]
    save_file({"a": torch.zeros(1)}, tmp_path / FILE, {"gnnplace": text})
    with pytest.raises(ValueError, match=words) as error:
        policy_of(tmp_path / FILE)
    assert "\n" not in str(error.value)


def trained(tmp_path, config, change=lambda weights: weights, **described):
    """A checkpoint of a policy with initial weights, some of them changed."""
    weights = {f"state_dict/policy.{name}": value for name, value in config.build(PolicyShape(), 1, 0).state_dict().items()}
    knobs = vars(config) | described
    description = {"config": {"policy": knobs, "training": {"groupings": 1}}, "shape": {"devices": 0, "kinds": []}, "problems": []}
    document = {"gnnplace": {"description": description, "updates_done": 1, "best": None}}
    SafetensorsIO().save_checkpoint(document | {"state_dict": {}}, tmp_path / FILE)
    with safe_open(tmp_path / FILE, "pt") as file:
        metadata = file.metadata()
    save_file({name: value.contiguous() for name, value in change(weights).items()}, tmp_path / FILE, metadata)
    return tmp_path / FILE


SMALL = UnitPlacerConfig(units="ops", width=8, rounds=1, hidden=8)


@pytest.mark.parametrize("value", [torch.nan, slow(torch.inf), slow(-torch.inf)])
def test_weights_are_finite(value, tmp_path):
    def damage(weights):
        return weights | {name: torch.full_like(part, value) for name, part in weights.items() if name.endswith("scorer.out.weight")}

    zero_shot.planner(trained(tmp_path, SMALL))
    with pytest.raises(ValueError, match=r"weights 'scorer\.out\.weight' are not finite: the file is damaged"):
        zero_shot.planner(trained(tmp_path, SMALL, damage))


def test_a_range_is_finite_or_of_nothing(tmp_path):
    def damage(weights):
        return weights | {name: -part for name, part in weights.items() if name.endswith("lowest")}

    with pytest.raises(ValueError, match="lowest' are not finite"):
        zero_shot.planner(trained(tmp_path, SMALL, damage))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_weights_are_of_their_type(dtype, tmp_path):
    def damage(weights):
        return {name: part.to(dtype) if part.dtype == torch.float32 and "range" not in name else part for name, part in weights.items()}

    with pytest.raises(ValueError, match=f"are {dtype}, the policy's are torch.float32"):
        zero_shot.planner(trained(tmp_path, SMALL, damage))


def test_shapes_are_compared_before_memory_is_taken(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"have shape \(8,.*\), the policy's have \(16000,"):
        zero_shot.planner(trained(tmp_path, SMALL, width=16_000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB; the weights would take 6 GiB


@pytest.mark.parametrize("knob", ["width", "rounds", "hidden"])
def test_sizes_are_bounded(knob, tmp_path):
    with pytest.raises(ValueError, match=rf"{knob}: 10000000 is not between"):
        zero_shot.planner(trained(tmp_path, SMALL, **{knob: 10**7}))


DESCRIBED = {
    "kinds": {"devices": 0, "kinds": [1]}, "devices": {"devices": 10**9, "kinds": []}, "groups": {"devices": 0, "kinds": [], "groups": -1},
    "shape": None,
}  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_description_is_a_strict_document(name, tmp_path):
    path = trained(tmp_path, SMALL)
    found = policy_of(path)
    found.description["shape"] = DESCRIBED[name]
    with pytest.raises(ValueError, match=rf"description: shape.*{name if name != 'shape' else 'None'}"):
        of_checkpoint(found)


def test_a_decision_from_no_number_is_refused():
    for answer in ("argmax", "sample"):
        with pytest.raises(ValueError, match="logits are not finite"):
            Tape(answer, 1, torch.Generator())("device", torch.tensor([[0.0, torch.nan]]))


def test_a_ranking_that_divides_by_zero_is_refused(tmp_path):
    network = ImproverConfig(width=4, hidden=1).build(PolicyShape(), 1, 0).scorer
    weights = {name: value.numpy() for name, value in network.state_dict().items()}
    Ranking.of(weights)
    for name, value in (("spread", 0.0), ("mean", torch.nan), ("layers.0.bias", torch.inf)):
        with pytest.raises(ValueError, match="ranking: its weights are not finite, or a spread is not above 0"):
            Ranking.of(weights | {name: torch.full_like(torch.from_numpy(weights[name]), value).numpy()})


def test_restoring_a_policy_keeps_what_it_had_where_it_is_refused(tmp_path):
    policy = SMALL.build(PolicyShape(), 1, 0)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    path = trained(tmp_path, SMALL, lambda weights: {name: part * torch.nan for name, part in weights.items()})
    with pytest.raises(ValueError, match="not finite"):
        restore_policy(policy_of(path), policy)
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in before.items())
