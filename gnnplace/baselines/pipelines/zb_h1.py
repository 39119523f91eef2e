"""ZB-H1 (Qi et al., ICLR 2024, arXiv 2401.10241, section 2.1): 1F1B with the gradients of weights apart.

B and F follow each other as in 1F1B. Device d runs the W of a micro-batch d micro-batches later, so that all W that are
left fill the end of the step. A step idles for (p - 1)(F + B - W), a third of 1F1B's where F = B = W. Device d holds
p - d micro-batches as in 1F1B and d more until their W, so no device holds more than 1F1B's first. But all of them hold
p, and small first stages save nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnplace.baselines.pipelines.actions import Action, Table, checked
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b


def zb_h1(devices: int, micro_batches: int) -> Table:
    """The actions of each device, which has one stage.

    >>> print(*zb_h1(2, 3)[1])
    1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2
    """
    return checked([_with_w_apart(order, micro_batches) for order in one_f_one_b(devices, micro_batches)])


def _with_w_apart(order: Sequence[Action], micro_batches: int) -> list[Action]:
    """The order of 1F1B in which W follows the B of `stage` micro-batches later, or all that is left."""
    apart, late = list[Action](), list[Action]()
    for kind, stage, copy in order:
        if kind == "F":
            apart.append(Action("F", stage, copy))
            continue
        apart.append(Action("B", stage, copy))
        if copy >= stage:
            apart.append(Action("W", stage, copy - stage))
        if copy + stage >= micro_batches:
            late.append(Action("W", stage, copy))
    return apart + late
