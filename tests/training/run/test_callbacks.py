"""Signals of a run: the first stops it after its update, a second one is the caller's, and what is ignored stays ignored."""

import signal

import pytest
from support.graphs import chains
from support.learners import REINFORCE, learner, settings

from gnnplace.training.run.assemble import SIGNALS, Interrupt, fit
from gnnplace.training.update.data import Problems


@pytest.fixture(autouse=True)
def before():
    """What a caller does about the signals: it counts them."""
    heard, kept = [], {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: heard.append(number))
    yield heard
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_is_the_caller_s(number, before):
    with Interrupt() as interrupt:
        signal.raise_signal(number)
        assert interrupt.received == number and before == []
        signal.raise_signal(number)
    signal.raise_signal(number)
    assert before == [number, number]


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_ignored_stays_ignored(number, before):
    signal.signal(number, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(number)
        assert interrupt.received is None
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("where", [(Interrupt, "on_fit_start"), (Problems, "train_dataloader"), (Interrupt, "on_train_start")])
def test_a_signal_is_ours_while_lightning_starts(where, number, before, monkeypatch):
    works = getattr(*where)
    monkeypatch.setattr(*where, lambda *arguments: signal.raise_signal(number) or works(*arguments))
    taught = learner([chains(2, 2, 2)], settings(updates=6), algorithm=REINFORCE)
    with Interrupt() as interrupt:
        fit(taught, callbacks=[interrupt])
    assert (interrupt.received, before) == (number, []) and taught.updates_done <= 1
