"""Small configurations of every policy: what the contract tests build."""

from gnnplace.policies.colocrl.policy import ColocRLConfig
from gnnplace.policies.go.policy import GOConfig
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.hsdag.policy import HsdagConfig
from gnnplace.policies.improver.policy import ImproverConfig
from gnnplace.policies.placeto.policy import PlacetoConfig
from gnnplace.policies.registry import POLICIES
from gnnplace.policies.unit_placer.policy import UnitPlacerConfig
from gnnplace.testing import with_each_encoder

EMBEDDED = [{"features": features, "neighbours": neighbours} for features in ("paper", "costs") for neighbours in ("indices", "messages")]
SMALL = {
    "hierarchical": [
        HierarchicalConfig(groups=3, width=16, encoder_width=8, encoder_rounds=2, **switches)
        for switches in [
            *({**encoder, "devices": devices} for encoder in EMBEDDED for devices in ("names", "observed")),
            *({**encoder, "grouper": grouper} for encoder in EMBEDDED for grouper in ("random", "none")),
            {"grouper": "random", "devices": "observed"},
            {"kinds": "canonical"},
            {"neighbours": "messages", "kinds": "canonical", "devices": "observed"},
            {"neighbours": "messages", "features": "costs", "devices": "observed", "grouper": "scheduled", "bases": 3, "rounds": 2},
            {"neighbours": "messages", "features": "costs", "devices": "observed", "grouper": "parsed"},
        ]
    ],
    "improver": [ImproverConfig(width=16, rounds=4, drawn=30)],
    "unit-placer": [UnitPlacerConfig(units="ops", width=8, rounds=2, hidden=8)],
    "colocrl": [
        ColocRLConfig(units="ops", width=16, encoder_width=8, encoder_rounds=2),
        ColocRLConfig(units="ops", width=16, bidirectional=True, bound=5.0),
    ],
    "placeto": [
        PlacetoConfig(units="ops", groups=8, rounds=2, **knobs)
        for knobs in [
            {},
            {"start_time": True, "memory": True, "sums": "mean"},
            {"residual": False, "order": "random", "start": "random", "evaluates": "last"},
            {"grouper": "learned", "encoder_width": 8, "encoder_rounds": 2, "hidden": 8},
        ]
    ],
    "hsdag": [HsdagConfig(steps=2, width=16, encoder_width=8, encoder_rounds=2)],
    "go": [
        GOConfig(width=16, state=4, heads=2, segment=4, hidden=16, levels=4, **switches)
        for switches in [{}, {"tasks": ("fusion", "placement", "scheduling"), "features": "costs"}, {"layers": 0, "iterations": 1}]
    ],
}


def small(kind):
    """The configurations of a policy; one without an entry in `SMALL` has its default knobs."""
    return SMALL.get(kind, [POLICIES[kind]()])


ENCODED = [config for kind in POLICIES for config in with_each_encoder(small(kind)[0])]
"""The first configuration of every policy, with each of its encoders."""
