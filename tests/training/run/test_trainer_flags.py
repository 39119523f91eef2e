"""Flags of Lightning's Trainer: any value of any type is taken, or refused in one line that names it, before anything is made."""

import inspect
import math

import pytest
import torch
from lightning import Trainer

from gnnplace.training.run import trainer_flags
from gnnplace.training.run.trainer_flags import OURS, flags, tried

FLAGS = sorted(inspect.signature(Trainer.__init__).parameters.keys() - OURS.keys() - {"self"})
VALUES = [
    None, True, False, 0, 1, -1, -5, 7, 2.5, -0.5, math.nan, math.inf, 10**30, "", "x", "auto", "1", "00:00:00:01", "a\nb",
    [], [0], [-1], ["x"], [[1]], {}, {"a": 1}, {"days": 10**9},
]  # fmt: skip


@pytest.fixture
def unchanged():
    """What a Trainer sets for the whole process is set back."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.backends.cudnn.benchmark = before[1]


@pytest.mark.parametrize("name", FLAGS)
def test_any_value_is_taken_or_refused_in_a_line_that_names_the_flag(name, unchanged, capsys):
    taken = 0
    for value in VALUES:
        try:
            assert tried({name: value}) >= 1
            taken += 1
        except ValueError as error:
            assert str(error).startswith(f"trainer.{name}: ") and "\n" not in str(error) and len(str(error)) < 600
    assert 0 < taken < len(VALUES)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", OURS)
def test_what_has_another_place_is_refused_with_that_place(name):
    with pytest.raises(ValueError, match=rf"^trainer\.{name}: "):
        flags({name: 1})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategy": "ddp_spawn"}, "trainer.strategy: 'ddp_spawn' is none of auto, single_device, ddp, "),
        ({"precision": "64-true"}, "trainer.precision: '64-true' is none of 32, "),
        ({"gradient_clip_val": 1.0, "accelerator": "x"}, "trainer.accelerator: 'x': "),
        ({"deterministic": 1}, "trainer.deterministic: 1 is none of what it may be: true or false, null, 'warn'"),
    ],
)
def test_the_flag_that_is_refused_is_named(given, words):
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        tried(given)


@pytest.mark.parametrize(("cores", "devices", "taken"), [(2, 2, True), (2, 3, False), (1, "2", False), (4, "auto", True)])
def test_no_more_processes_than_cores(cores, devices, taken, monkeypatch):
    monkeypatch.setattr(trainer_flags, "usable_cores", lambda: cores)
    if taken:
        assert tried({"devices": devices}) == (devices if isinstance(devices, int) else 1)
        return
    with pytest.raises(ValueError, match=rf"trainer\.devices: {devices} processes take a core each, and this one may use {cores}$"):
        tried({"devices": devices})
