"""GPipe (Huang et al., NeurIPS 2019, section 2): all forward passes, then all backward passes.

A step idles for (p - 1)(F + B + W), and a device holds the activations of all M micro-batches. Figure 2 of the paper
draws the backward passes from the last micro-batch to the first; here they begin with the first, as in
`torch.distributed.pipelining`, since gradients are summed in this order. Times and memory are the same.
"""

from __future__ import annotations

from gnnplace.baselines.pipelines.actions import Action, Table, checked


def gpipe(devices: int, micro_batches: int) -> Table:
    """The actions of each device, which has one stage.

    >>> print(*gpipe(2, 2)[0])
    0F0 0F1 0BW0 0BW1
    """
    copies = range(micro_batches)
    return checked(
        [
            [Action("F", stage, copy) for copy in copies] + [Action("BW", stage, copy) for copy in copies]
            for stage in range(devices)
        ]
    )
