"""A greedy answer is the most probable option, and of options that differ by rounding alone the first."""

import torch

from gnnplace.policies.tape import ROUNDING, Tape


def chosen(*logits: float) -> int:
    return int(Tape("argmax", 1)("device", torch.tensor([logits])).item())


def test_equal_options_are_told_apart_by_their_number_and_not_by_rounding():
    assert chosen(1.0, 1.0 + 3e-8, 0.5) == chosen(1.0 + 3e-8, 1.0, 0.5) == 0
    assert chosen(-100.0, 1.0, 1.0 + ROUNDING / 2) == 1


def test_what_differs_by_more_is_told_apart():
    assert chosen(1.0, 1.0 + 3 * ROUNDING) == 1 and chosen(1.0 + 3 * ROUNDING, 1.0) == 0
    masked = Tape("argmax", 1)("device", torch.tensor([[2.0, 1.0]]), torch.tensor([False, True]))
    assert masked.tolist() == [1]
