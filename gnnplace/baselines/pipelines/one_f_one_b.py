"""1F1B: PipeDream-Flush (Narayanan et al., ICML 2021, section 3.2), DAPPLE (Fan et al., PPoPP 2021).

A device runs as many forward passes as there are stages behind its own, then a forward and a backward pass in turns,
and at last the backward passes that are left. A step idles as in GPipe, for (p - 1)(F + B + W), but device d holds the
activations of min(p - d, M) micro-batches.
"""

from __future__ import annotations

from gnnplace.baselines.pipelines.actions import Action, Table, checked


def one_f_one_b(devices: int, micro_batches: int) -> Table:
    """The actions of each device, which has one stage.

    >>> print(*one_f_one_b(2, 3)[0])
    0F0 0F1 0BW0 0F2 0BW1 0BW2
    """
    return checked([_order(devices, micro_batches, stage) for stage in range(devices)])


def _order(devices: int, micro_batches: int, stage: int) -> list[Action]:
    ahead = min(devices - 1 - stage, micro_batches)
    order = [Action("F", stage, copy) for copy in range(ahead)]
    for copy in range(micro_batches):
        if copy + ahead < micro_batches:
            order.append(Action("F", stage, copy + ahead))
        order.append(Action("BW", stage, copy))
    return order
