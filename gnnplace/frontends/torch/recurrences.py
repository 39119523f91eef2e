"""Recurrent layers as the products of their cells; packed sequences and CTC losses of known lengths.

PyTorch's ops on sequences read lengths from memory, which a fake tensor has not. Here they get them as Python numbers,
which fix all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from gnnplace.frontends.torch.refusals import NEEDS_VALUES

RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


class Recurrences(TorchFunctionMode):
    """A mode in which torch decomposes recurrent layers, and packs and pads sequences by Python numbers.

    Otherwise an LSTM might be one call of oneDNN, an op of unknown cost.
    """

    @no_type_check  # the frame of a runtime type checker would precede the module's own in tracebacks
    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").split(".")[0]
        if name == "_pack_padded_sequence":
            return packed(*args, **(kwargs or {}))
        if name == "_pad_packed_sequence":
            return padded(*args, **(kwargs or {}))
        if name == "ctc_loss" and None not in (lengths := [_numbers(value) for value in args[2:4]]):
            return ctc_loss(*args[:2], *lengths, *args[4:], **(kwargs or {}))
        if name not in RECURRENT:
            return func(*args, **(kwargs or {}))
        with torch.backends.mkldnn.flags(enabled=False):
            return func(*_with_batch_sizes(args), **(kwargs or {}))


def packed(padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The elements of sequences, time step by time step, and the number of sequences in each step.

    Raises RuntimeError as PyTorch does: for lengths that are not above 0 or not in descending order.
    """
    numbers: list[int] = lengths.tolist()
    if not numbers or numbers[-1] <= 0:
        raise RuntimeError(f"lengths: {numbers}: each has to be above 0")
    if numbers != sorted(numbers, reverse=True):
        raise RuntimeError(f"lengths: {numbers}: are not in descending order; enforce_sorted=False sorts them")
    steps = padded.transpose(0, 1) if batch_first else padded
    parts, batch_sizes = [], list[int]()
    for length in sorted(set(numbers)):
        batch = sum(number >= length for number in numbers)
        part = steps[len(batch_sizes) : length, :batch]
        parts.append(part.reshape(-1, *steps.shape[2:]))
        batch_sizes += [batch] * (length - len(batch_sizes))
    return torch.cat(parts), torch.tensor(batch_sizes)


def padded(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """The sequences of a packed one, padded to a common length, and their lengths. Inverts `packed`."""
    numbers: list[int] = batch_sizes.tolist()
    output = data.new_full((max(total_length, len(numbers)), numbers[0], *data.shape[1:]), padding_value)
    start = first = 0
    for step, batch in enumerate(numbers):
        if step + 1 == len(numbers) or numbers[step + 1] != batch:
            count = step + 1 - first
            part = data[start : start + count * batch].reshape(count, batch, *data.shape[1:])
            output[first : step + 1, :batch] = part
            start, first = start + count * batch, step + 1
    lengths = torch.tensor([sum(batch > sequence for batch in numbers) for sequence in range(numbers[0])])
    return (output.transpose(0, 1) if batch_first else output), lengths


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The ops of PyTorch's `ctc_loss` for lengths that are numbers, with its arguments."""
    batched = log_probs if log_probs.dim() == 3 else log_probs.unsqueeze(1)
    losses, _ = torch.ops.aten._ctc_loss.default(
        batched, targets.long(), list(input_lengths), list(target_lengths), blank, zero_infinity
    )
    if zero_infinity:
        losses = torch.where(losses == math.inf, torch.zeros((), dtype=losses.dtype), losses)
    if reduction in ("mean", 1):
        return (losses / torch.tensor(target_lengths, dtype=losses.dtype).clamp_min(1)).mean()
    if reduction in ("sum", 2):
        return losses.sum()
    return losses if log_probs.dim() == 3 else losses.squeeze(0)


def _numbers(lengths: Any) -> Sequence[int] | None:
    """Lengths as numbers; None if they are unknown."""
    try:
        numbers = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    except NEEDS_VALUES:
        return None
    return [numbers] if isinstance(numbers, int) else numbers


def _with_batch_sizes(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a recurrent layer; those for a packed sequence with batch sizes that have memory."""
    if len(args) < 4 or not isinstance(args[3], list | tuple):  # the weights; without batch sizes they come earlier
        return args
    numbers = args[1].tolist()
    with _disable_current_modes():
        sizes = torch.tensor(numbers)
    return (args[0], sizes, *args[2:])
