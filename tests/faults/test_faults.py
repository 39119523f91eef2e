"""Commands under fire: whatever fails, files are whole or absent, the next command works, and nothing is left (tests/faults/cases.py)."""

import pytest
import torch
from faults.case import Case
from faults.cases import SIGNALS, at_every_step, at_once, at_random_times
from faults.commands import COMMANDS, SIGNALLED
from faults.injection import FAULTS


def broken(found: list[Case], tmp_path) -> list[str]:
    """What did not hold in which case, a line each."""
    said = []
    for number, case in enumerate(found):
        (folder := tmp_path / str(number)).mkdir()
        if (what := case.broken(folder)) is not None:
            said.append(f"{case.kind}: {case.name}: {what}")
    assert found
    return said


QUICK = "import", "disk full"  # in `make test`, too
EVERY = {"train": 24}  # step of a command that takes seconds; `make reliability` tries all
TIMES = 2  # of those at which `make reliability` sends a signal


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        pytest.param(each, kind, id=f"{each.name}-{kind}", marks=() if (each.name, kind) == QUICK else pytest.mark.slow)
        for each in COMMANDS
        for kind in FAULTS
    ],
)
def test_a_fault_at_any_step_of_writing(command, kind, tmp_path):
    assert broken(list(at_every_step(command, kind))[:: EVERY.get(command.name, 1)], tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", SIGNALLED)
def test_a_signal_at_any_time(name, number, tmp_path):
    assert broken(list(at_random_times(name, number))[:TIMES], tmp_path) == []


@pytest.mark.slow
def test_a_command_ends_though_this_process_has_computed_with_threads(tmp_path):
    torch.set_num_threads(2)
    torch.nn.functional.layer_norm(torch.ones(4096, 512), (512,))
    assert broken([next(at_every_step(COMMANDS[-1], "disk full"))], tmp_path) == []


@pytest.mark.slow
def test_two_of_everything_at_once(tmp_path):
    assert broken(list(at_once()), tmp_path) == []
