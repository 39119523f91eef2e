"""Commands whose standard streams are closed or full, or have no reader (tests/faults/streams.py); `make reliability` tries all of each."""

import pytest
from faults.streams import COMMANDS, STREAMS, states
from faults.test_faults import broken

APART = 3  # states of each command that are tried


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_asked_for_is_done_though_nobody_hears_of_it(command, tmp_path):
    first = list(COMMANDS).index(command) % APART
    assert len(STREAMS) % APART == 0 and broken(list(states(command))[first::APART], tmp_path) == []
