"""Every policy with each of its encoders: it learns, its checkpoint places as it does, and it places graphs that it never saw."""

import numpy as np
import pytest
from support.graphs import chains
from support.learners import settings
from support.small_policies import ENCODED

from gnnplace import testing
from gnnplace.config.algorithms import PpoConfig
from gnnplace.config.run import RunConfig
from gnnplace.placement import check
from gnnplace.policies.registry import POLICIES
from gnnplace.training.run import assemble, zero_shot


def named(config):
    return f"{config.kind}-{config.encodes_with}"


@pytest.mark.parametrize("policy", [each for each in ENCODED if each.encoders], ids=named)
def test_a_checkpoint_places_as_what_was_trained_also_graphs_of_other_sizes(policy, tmp_path):
    problem, config = (
        testing.branches(),
        RunConfig(policy, training=settings(updates=1, groupings=2, samples=2, lr=0.02), algorithm=PpoConfig(epochs=2)),
    )
    trained = assemble.train(config, [problem])
    trained.save(tmp_path / "checkpoint.safetensors")
    again = zero_shot.planner(tmp_path / "checkpoint.safetensors")
    assert again.encoder == policy.encodes_with
    fewer, more = chains(2, 2, 3), testing.restricted()
    for of in (problem, fewer) if one_graph(policy) else (problem, fewer, more):
        placement = again(of)
        assert check(of, placement) is None and np.array_equal(placement.device, trained.policy(of).device)
    if one_graph(policy):
        with pytest.raises(ValueError, match=r"restricted: 15 colocation groups, but this policy has learned 5"):
            again(more)


def one_graph(policy):
    """ColocRL as published has a column for each group of its graph."""
    return policy.kind == "colocrl" and policy.encodes_with == "paper"


def test_policies_that_embed_ops_have_both_encoders_and_the_others_say_what_they_have():
    assert {kind: list(policy().encoders) for kind, policy in POLICIES.items()} == {
        "hierarchical": ["paper", "gnn"],
        "unit-placer": ["paper", "gnn"],
        "improver": [],
        "colocrl": ["paper", "gnn"],
        "placeto": ["gnn"],
        "hsdag": ["paper", "gnn"],
        "go": ["paper", "gnn"],
    }


@pytest.mark.parametrize("policy", ENCODED, ids=named)
def test_an_encoder_is_named_by_its_knobs(policy):
    with_these_knobs = [
        name for name, knobs in policy.encoders.items() if all(getattr(policy, knob) == value for knob, value in knobs.items())
    ]
    assert with_these_knobs == ([] if policy.encodes_with is None else [policy.encodes_with])
