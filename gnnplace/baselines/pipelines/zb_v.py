"""ZB-V (Qi et al., ICLR 2024, arXiv 2401.10241, section 6): two chunks a device, in the shape of a V.

Stage d and stage 2p - 1 - d are on device d, so that the loss is on the first device, where the backward pass begins at
once. Where F = B = W, no device idles between its first and its last pass, and each holds the activations of p
micro-batches at most.
"""

from __future__ import annotations

from gnnplace.baselines.pipelines.actions import Action, Table, checked


def zb_v(devices: int, micro_batches: int) -> Table:
    """The actions of each device. With less than 2p - 1 micro-batches the others' passes are left out.

    >>> print(*zb_v(1, 1)[0])
    0F0 1F0 1B0 1W0 0B0 0W0
    """
    whole = max(2 * devices - 1, micro_batches)
    rows = [_order(devices, whole, device) for device in range(devices)]
    return checked([[action for action in row if action.micro_batch < micro_batches] for row in rows])


def _order(devices: int, micro_batches: int, device: int) -> list[Action]:
    """At least 2p - 1 micro-batches. In lower case are passes over the second chunk."""
    behind = devices - device
    filling = micro_batches - (2 * devices - 1 - device)  # forward passes that the first chunk still runs after warm-up
    order = ["F"] * (2 * behind - 1) + ["f", "F"] * device + ["f", "b", "w"] * behind
    order += ["F", "B", "W", "f", "b", "w"] * filling
    order += ["B", "W", "f", "b", "w"] * (devices - 1 - device)
    order += ["B", "b"] * device + ["B", "W"] * behind + ["w"] * device + ["W"] * device
    return _numbered(order, {True: device, False: 2 * devices - 1 - device})


def _numbered(order: list[str], stage: dict[bool, int]) -> list[Action]:
    """The actions of an order of kinds. Each kind takes one micro-batch after another; `stage[True]` is that of F."""
    turn: dict[str, int] = {}
    actions = []
    for kind in order:
        copy = turn.setdefault(kind, 0)
        turn[kind] += 1
        actions.append(Action(kind.upper(), stage[kind.isupper()], copy))  # type: ignore[arg-type]
    return actions
