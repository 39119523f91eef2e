"""A signal at any moment of any command: one line, its status, nothing in part and nothing left (tests/faults/moments.py)."""

import pytest
from faults.moments import COMMANDS, MOMENTS, SIGNALS, moments
from faults.test_faults import broken

APART = 19  # moments of each command and signal that are tried, of those of `make reliability`


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_ends_a_command_at_any_moment(name, number, tmp_path):
    first = (5 * list(COMMANDS).index(name) + 11 * list(SIGNALS).index(number)) % APART
    assert broken(list(moments(name, number))[first::APART][:1], tmp_path) == [] and APART < MOMENTS / 2
