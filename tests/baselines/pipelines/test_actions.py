"""Tables of actions that are no schedules, and rules for all numbers of devices and micro-batches."""

from __future__ import annotations

import pytest

from gnnplace.baselines.pipelines.actions import Action, checked, devices_of_stages
from gnnplace.baselines.pipelines.gpipe import gpipe
from gnnplace.baselines.pipelines.interleaved import interleaved_1f1b
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.v_half import v_half
from gnnplace.baselines.pipelines.zb_h1 import zb_h1
from gnnplace.baselines.pipelines.zb_v import zb_v


def row(text: str) -> list[Action]:
    """Actions as `Action` prints them, of stages and micro-batches below 10."""
    return [Action(word[1:-1], int(word[0]), int(word[-1])) for word in text.split()]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (["0F0", "1F0 1BW0"], "0B0 occurs 0 times, not once"),
        (["0F0 0BW0 0W0", "1F0 1BW0"], "0W0 occurs 2 times, not once"),
        (["0F0 0BW0 1F0", "1BW0"], "stage 1 is on several devices"),
        (["0F0 0BW0", "1BW0 1F0"], "device 0 waits forever for the inputs of 0BW0"),
        (["0F0 0F1 0BW0 0BW1", "1F1 1BW1 1BW0 1F0"], "device 0 waits forever for the inputs of 0BW0"),
    ],
)
def test_what_is_no_schedule_is_refused(table: list[str], why: str):
    with pytest.raises(ValueError, match=f"actions: {why}"):
        checked([row(text) for text in table])


@pytest.mark.parametrize("rule", [gpipe, one_f_one_b, interleaved_1f1b, zb_h1, zb_v, v_half])
def test_every_rule_makes_a_schedule_of_any_size(rule):
    for devices in range(1, 7):
        for copies in range(1, 9):
            assert len(set(devices_of_stages(rule(devices, copies)))) == (devices if rule is not interleaved_1f1b else max(
                fewer for fewer in range(1, devices + 1) if copies % fewer == 0))  # fmt: skip
