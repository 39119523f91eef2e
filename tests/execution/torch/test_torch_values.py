"""How tensors are sent: what lies closely, once, and whether that is all of their memory."""

import pytest
import torch
from torch import Tensor

from gnnplace.execution.torch.values import as_sent, is_whole

CASES = {
    "as it is": (torch.empty(2, 3), True),
    "transposed": (torch.empty(2, 3).t(), True),
    "expanded": (torch.empty(2, 1).expand(2, 3), True),
    "a part": (torch.empty(4, 3)[:2], False),
    "over itself, as many bytes": (torch.empty(4).as_strided((2, 2), (1, 1)), False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_sent_whole_is_all_of_its_memory_in_its_order(name: str) -> None:
    tensor, whole = CASES[name]
    assert is_whole(tensor, as_sent(tensor)) is whole


def test_what_is_expanded_is_sent_once() -> None:
    sent: Tensor = as_sent(CASES["expanded"][0])
    assert sent.shape == (2, 3)
    assert sent.untyped_storage().nbytes() == 2 * 4
