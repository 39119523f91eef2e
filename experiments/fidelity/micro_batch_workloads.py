"""Workloads of fidelity in several micro-batches: `bert_4` is `torch_workloads.bert` with its batch in four."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from experiments.fidelity import torch_workloads
from gnnplace.frontends.torch.step import TorchStep

WORKLOADS = {"two_tower": 0, "gru_language": 1, "inception": 0}  # the dimension of the batch in their inputs


def _in(workload: str, micro_batches: int) -> TorchStep:
    step: TorchStep = getattr(torch_workloads, workload)()
    return replace(step, micro_batches=micro_batches, batch_dim=WORKLOADS[workload])


def __getattr__(name: str) -> Callable[[], TorchStep]:
    """The function that builds a workload in so many micro-batches, by its name and their number."""
    workload, _, number = name.rpartition("_")
    if workload not in WORKLOADS or not number.isdigit():
        raise AttributeError(name)
    return partial(_in, workload, int(number))
